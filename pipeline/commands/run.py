"""`tfx-estimator run`: runs the declared pipeline."""

from __future__ import annotations

import argparse
import os

from pipeline.commands.arguments import add_declaration

HELP = "run the declared pipeline on this machine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    add_declaration(parser)
    parser.add_argument("--workdir", metavar="DIR", default="runs", help="where the results go (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Loads the declaration and runs it."""
    from pipeline.config import load
    from pipeline.config.paths import check_workdir

    loaded = load(args.source, args.overrides)
    check_workdir(args.workdir)
    _check_alone()

    from pipeline.runners.console import run_declaration

    return run_declaration(loaded, workdir=args.workdir)


def _check_alone() -> None:
    """Refuses to run a whole pipeline in each process of somebody else's cluster: only a Trainer's executor joins one.

    Raises:
        PipelineError: This process is a task of a cluster.
    """
    from components.trainer.cluster.tf_config import resolve
    from pipeline.errors import PipelineError

    place = resolve(os.environ)
    if place is not None:
        raise PipelineError(
            f"this process is {place.task.name} of a cluster of {len(place.cluster.tasks)} tasks (TF_CONFIG, or "
            "SLURM's variables), and `run` would run the whole pipeline in each of them",
            expected="the executor of Trainer in each task, as TFX's launchers start it; or `run` in a single process",
            todo="to start a cluster on this machine instead, set TF_CONFIG='{}'",
        )
