"""`tfx-estimator validate`: checks declarations, and shows all problems at once."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Optional

from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.commands.shared import add_declaration, add_target

if TYPE_CHECKING:
    from tfx_estimator.pipeline.config import Declaration, Loaded
    from tfx_estimator.pipeline.run.dry_run import DryRunResult

HELP = "check a declaration; shows all problems at once"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    add_declaration(parser, several=True)
    parser.add_argument(
        "--deep",
        action="store_true",
        help="also try your code on made-up examples, which takes some seconds; exit code 4 if it fails",
    )
    add_target(parser, "also list what is missing, or only on this machine, for a run on this service", default="")


def run(args: argparse.Namespace) -> int:
    """Checks each source; returns the exit code of the last problem."""
    from tfx_estimator.pipeline.base.errors import TfxEstimatorError
    from tfx_estimator.pipeline.commands.shared import say
    from tfx_estimator.pipeline.config.draft import join_sources

    code = 0
    for source in args.source:
        try:
            loaded, tried = check(
                source,
                args.overrides,
                args.target,
                args.deep,
                lambda text: say(text, to_stderr=True),
            )
            say(one_line(f"ok: {source}: {summarise(loaded.declaration)}"))
            for remark in loaded.remarks:
                say(f"    {remark}")
            if tried:
                say(f"    tried: {one_line(str(tried))}")
        except TfxEstimatorError as error:
            if source != args.source[0] and _is_partial(source):
                error.todo = (
                    f"to merge it over the first: tfx-estimator validate {join_sources([args.source[0], source])}"
                )
            # An error that cannot be printed still decides the exit code.
            with contextlib.suppress(OSError, TfxEstimatorError):
                say(f"tfx-estimator: {error}", to_stderr=True)
            code = error.exit_code
    return code


def _is_partial(source: str) -> bool:
    """Returns whether a file lacks required keys, so that it may be meant to override parts of another."""
    from tfx_estimator.pipeline.base.errors import TfxEstimatorError
    from tfx_estimator.pipeline.config import Declaration
    from tfx_estimator.pipeline.config.draft import read_source

    with contextlib.suppress(TfxEstimatorError):
        values = read_source(source).values
        return any(field.required and key not in values for key, field in Declaration.__fields__.items())
    return False


def check(
    source: str, overrides: Sequence[str], target: str, deep: bool, tell: Callable[[str], None] = lambda _: None
) -> tuple[Loaded, Optional[DryRunResult]]:
    """Loads a declaration, and with `deep` tries its code; raises on problems. Passes progress messages to `tell`."""
    from tfx_estimator.pipeline.config import load

    loaded = load(source, overrides, target)
    if not deep:
        return loaded, None
    from tfx_estimator.pipeline.run import dry_run

    tell(one_line(f"trying the code of {source} on made-up examples ..."))
    with dry_run.begin(loaded) as trial:
        return loaded, trial.wait()


def summarise(declaration: Declaration) -> str:
    """Returns a declaration in one line."""
    from tfx_estimator.pipeline.config.table import kind_of

    data, trainer, train = declaration.data, declaration.trainer, declaration.trainer.distribution.train
    count = train.devices.count
    kind = "GPUs" if train.devices.gpu else "logical CPUs"
    where = f"{train.strategy} on {count} {kind}" if count > 1 else train.strategy
    if train.is_cluster:
        where += f" with {train.worker_count} workers" + (f" and {train.ps_count} ps" if train.ps_count else "")
        where += " and an evaluator" if trainer.distribution.evaluator else ""
    length = f"{trainer.train_epochs:g} epochs in steps" if trainer.train_epochs else f"{trainer.train_steps:,} steps"
    steps = f"{length} of {trainer.global_batch_size:,}"
    least = f"accuracy {declaration.evaluator.min_accuracy:g}"
    blessed = "blessed above the constant predictor" if data.is_table else f"blessed from {least}"
    tuned = f"{declaration.tune.summary}, " if declaration.tune else ""
    from_data = f"{data.table_path}, {kind_of(data)} `{data.label}`" if data.is_table else data.dataset
    return f"{from_data} -> {trainer.model or trainer.module_file}, {steps}, {where}, {tuned}{blessed}"
