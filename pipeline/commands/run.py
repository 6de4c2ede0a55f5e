"""`tfx-estimator run`: runs the declared pipeline."""

from __future__ import annotations

import argparse
import os

from tfx_estimator.pipeline.commands.arguments import add_declaration

HELP = "run the declared pipeline on this machine; in a task of a cluster (TF_CONFIG, srun), take part in its training"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    add_declaration(parser)
    parser.add_argument("--workdir", metavar="DIR", default="runs", help="where the results go (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Loads the declaration and runs it."""
    from tfx_estimator.pipeline.config import load
    from tfx_estimator.pipeline.config.paths import check_workdir

    loaded = load(args.source, args.overrides)
    check_workdir(args.workdir)

    from tfx_estimator.components.trainer.cluster.plan import resolve_distribution
    from tfx_estimator.components.trainer.cluster.tf_config import CHIEF, resolve

    place = resolve(os.environ)
    # That it is the declared cluster, and can share the batch, before anything starts.
    loaded.check_cluster(resolve_distribution(loaded.declaration.trainer.distribution, place))
    if place is not None and place.task.type != CHIEF:
        from tfx_estimator.pipeline.run.join import join

        return join(loaded, args.workdir, place)

    from tfx_estimator.pipeline.run.console import run_declaration

    return run_declaration(loaded, args.workdir, place and place.cluster.addresses)
