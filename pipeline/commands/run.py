"""`tfx-estimator run`: runs the declared pipeline."""

from __future__ import annotations

import argparse
import dataclasses
import os
from typing import TYPE_CHECKING

from tfx_estimator.pipeline.commands.shared import add_declaration, add_workdir

if TYPE_CHECKING:
    from tfx_estimator.pipeline.run.summary import Summary

HELP = "run the declared pipeline on this machine; in a task of a cluster (TF_CONFIG, srun), take part in its training"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    add_declaration(parser)
    add_workdir(parser, "where the results go: a folder, or gs://BUCKET/FOLDER")
    parser.add_argument(
        "--require-blessing", action="store_true", help="end with exit code 7 if the model is not blessed"
    )
    parser.add_argument(
        "--rerun",
        metavar="NODE",
        action="append",
        default=[],
        help="run this component again though nothing has changed (`Trainer`: from step 0); may be given several times",
    )
    parser.add_argument(
        "--no-dry-run", action="store_true", help="do not try your code on made-up examples before data is read"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON, and all other output to stderr")
    parser.add_argument("-q", "--quiet", action="store_true", help="print only warnings and errors")
    parser.add_argument(
        "--report",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="write report.html next to the logs; this predicts the evaluation examples once more",
    )


def run(args: argparse.Namespace) -> int:
    """Loads the declaration and runs it."""
    from tfx_estimator.pipeline.commands.shared import summarised
    from tfx_estimator.pipeline.run.summary import Summary

    summary = Summary(args.source)
    with summarised(summary, prints=args.json):
        return _run(args, summary, terminal_fd=2 if args.json else 1)


def _run(args: argparse.Namespace, summary: Summary, terminal_fd: int) -> int:
    from tfx_estimator.pipeline.base.errors import DeclarationError
    from tfx_estimator.pipeline.config import load
    from tfx_estimator.pipeline.config.deploy import Nodes
    from tfx_estimator.pipeline.config.paths import check_workdir

    loaded = load(args.source, args.overrides)
    check_workdir(args.workdir, stores=True)
    _, *nodes = Nodes.__fields__
    if unknown := {*args.rerun} - {*nodes}:
        what = f"--rerun {', '.join(sorted(unknown))}: there is no such component"
        raise DeclarationError(what, expected=f"one of {', '.join(nodes)}", todo="name one")
    loaded = dataclasses.replace(loaded, rerun=tuple(args.rerun))

    from tfx_estimator.components.trainer.cluster.plan import resolve_distribution
    from tfx_estimator.components.trainer.cluster.tf_config import CHIEF, resolve

    place = resolve(os.environ)
    # Before anything starts: is this the declared cluster, and can its tasks share the batch?
    distribution = resolve_distribution(loaded.declaration.trainer.distribution, place)
    loaded.check_cluster(distribution, joins=place is not None)
    if place is not None and place.task.type != CHIEF:
        from tfx_estimator.pipeline.run.join import join

        summary.name = loaded.declaration.name
        return join(loaded, args.workdir, place, terminal_fd)

    from tfx_estimator.pipeline.run.console import run_declaration

    return run_declaration(
        loaded,
        args.workdir,
        place and place.cluster.addresses,
        summary=summary,
        require_blessing=args.require_blessing,
        dry_runs=not args.no_dry_run,
        terminal_fd=terminal_fd,
        report=args.report,
        quietly=args.quiet,
    )
