"""`tfx-estimator estimate`: estimates the cost of a declaration's training, without training."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.commands.shared import add_declaration

if TYPE_CHECKING:
    from tfx_estimator.pipeline.config import Loaded
    from tfx_estimator.pipeline.experiments.estimate import Estimate

HELP = "estimate the cost of training, without training: parameters, FLOPs, memory, bytes over the wire"
_EPILOG = """\
One step is built with the declared batch, and not run; no cluster is started. No images are read, and of a table the
first rows.

  tfx-estimator estimate cifar10 --set trainer.global_batch_size=4096
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    add_declaration(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, in bytes and counts")
    parser.epilog = _EPILOG


def run(args: argparse.Namespace) -> int:
    """Builds the step in a subprocess, and prints its cost."""
    from tfx_estimator.pipeline.commands.shared import say
    from tfx_estimator.pipeline.config import load
    from tfx_estimator.pipeline.experiments.estimate import check_estimable, lines

    loaded = load(args.source, args.overrides)
    check_estimable(loaded.declaration)
    found = _estimate(loaded)
    say(json.dumps(found.to_dict(), indent=2, allow_nan=False) if args.json else "\n".join(lines(found)))
    for warning in loaded.warnings:
        say(f"warning: {one_line(warning)}", to_stderr=True)
    return 0


def _estimate(loaded: Loaded) -> Estimate:
    from tfx_estimator.components.trainer.protocol.task_spec import COSTS
    from tfx_estimator.pipeline.experiments.estimate import make_estimate
    from tfx_estimator.pipeline.run import dry_run

    with dry_run.begin(loaded, path=COSTS) as trial:
        return make_estimate(loaded.declaration, trial.wait().found)
