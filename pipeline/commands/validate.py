"""`tfx-estimator validate`: checks declarations, and shows everything that is wrong at once."""

from __future__ import annotations

import argparse
import sys

from tfx_estimator.pipeline.commands.arguments import add_declaration

HELP = "check a declaration; shows all problems at once"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    add_declaration(parser, several=True)


def run(args: argparse.Namespace) -> int:
    """Checks each source; returns 2 if one is wrong."""
    from tfx_estimator.pipeline.config import load
    from tfx_estimator.pipeline.errors import DeclarationError

    code = 0
    for source in args.source:
        try:
            loaded = load(source, args.overrides)
            print(f"ok: {source}: {summarise(loaded.declaration)}")
            for note in loaded.notes:
                print(f"    note: {note}")
            for warning in loaded.warnings:
                print(f"    warning: {warning}")
        except DeclarationError as error:
            print(f"tfx-estimator: {error}", file=sys.stderr)
            code = error.exit_code
    return code


def summarise(declaration) -> str:  # type: ignore[no-untyped-def]  # the type's import would cost --help its speed
    """Returns a declaration in one line.

    Args:
        declaration: A pipeline.config.Declaration.
    """
    data, trainer, train = declaration.data, declaration.trainer, declaration.trainer.distribution.train
    count = train.devices.count
    where = f"{train.strategy} on {count} devices" if count > 1 else train.strategy
    if train.is_cluster:
        where += f" with {train.worker_count} workers" + (f" and {train.ps_count} ps" if train.ps_count else "")
        where += " and an evaluator" if trainer.distribution.evaluator else ""
    length = f"{trainer.train_epochs:g} epochs in steps" if trainer.train_epochs else f"{trainer.train_steps:,} steps"
    steps = f"{length} of {trainer.global_batch_size:,}"
    blessed = f"blessed from accuracy {declaration.evaluator.min_accuracy:g}"
    return f"{data.dataset} -> {trainer.model or trainer.module_file}, {steps}, {where}, {blessed}"
