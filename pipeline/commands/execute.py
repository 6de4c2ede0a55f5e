"""`tfx-estimator execute`: executes a compiled pipeline on this machine, as the service would."""

from __future__ import annotations

import argparse
import os

from tfx_estimator.pipeline.platforms.registry import TARGETS

HELP = "execute a compiled pipeline on this machine, as the service would: a rehearsal"
EPILOG = f"""\
It takes what `compile` wrote for the targets {" and ".join(TARGETS)}. Each step runs the command of its
container in a subprocess, with this Python; images, machines and accounts are not tested.

  tfx-estimator compile mine.yaml --target {TARGETS[0]} --output mine.json
  tfx-estimator execute mine.json --root rehearsal
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("file", metavar="FILE", help="the compiled pipeline")
    parser.add_argument(
        "--root",
        metavar="DIR",
        type=os.path.expanduser,
        default="rehearsal",
        help="where the results go: a folder, or gs://BUCKET/FOLDER (default: %(default)s)",
    )
    parser.add_argument(
        "--parameter",
        dest="parameters",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="value of a runtime parameter; the pipeline's own folders are in DIR; may be given several times",
    )
    parser.add_argument("--no-cache", action="store_true", help="execute all steps, also those that are cached")
    parser.add_argument(
        "--require-blessing", action="store_true", help="end with exit code 7 if the model is not blessed"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON, and all other output to stderr")
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    """Executes the file."""
    from tfx_estimator.pipeline.commands.shared import summarised
    from tfx_estimator.pipeline.config.paths import check_workdir
    from tfx_estimator.pipeline.run.executed import execute_file
    from tfx_estimator.pipeline.run.summary import Summary

    given = dict(map(_parse, args.parameters))
    check_workdir(args.root, "--root", stores=True)
    summary = Summary(args.file)
    with summarised(summary, prints=args.json):
        return execute_file(
            args.file,
            args.root,
            given,
            summary,
            caches=not args.no_cache,
            require_blessing=args.require_blessing,
            terminal_fd=2 if args.json else 1,
        )


def _parse(text: str) -> tuple[str, str]:
    from tfx_estimator.pipeline.base.errors import DeclarationError

    name, is_one, value = text.partition("=")
    if not name or not is_one:
        raise DeclarationError(
            f"--parameter {text!r} is not NAME=VALUE",
            expected="for example push_destination=/srv/models",
            todo="correct it",
        )
    return name, value
