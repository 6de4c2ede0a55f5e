"""`tfx-estimator run`: runs the declared pipeline."""

from __future__ import annotations

import argparse

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

    from pipeline.runners.console import run_declaration

    return run_declaration(loaded, workdir=args.workdir)
