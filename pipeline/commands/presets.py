"""`tfx-estimator presets`: lists the shipped declarations."""

from __future__ import annotations

import argparse

HELP = "list the shipped declarations"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("name", metavar="PRESET", nargs="?", help="shows this preset's overrides and expected result")


def run(args: argparse.Namespace) -> int:
    """Prints each preset in one line; or one preset's header."""
    from tfx_estimator.pipeline import presets
    from tfx_estimator.pipeline.commands.copy import check_preset
    from tfx_estimator.pipeline.commands.shared import say

    if args.name:
        check_preset(args.name)
        say("\n".join(presets.header(args.name)))
        return 0
    width = max(map(len, presets.names()))
    for name in presets.names():
        say(f"{name:{width}}  {presets.summary(name)}")
    return 0
