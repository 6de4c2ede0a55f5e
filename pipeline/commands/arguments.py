"""Arguments that several verbs share."""

from __future__ import annotations

import argparse
import os
from typing import Optional


def add_declaration(
    parser: argparse.ArgumentParser,
    *,
    nargs: Optional[str] = None,
    source: str = "a preset's name, or a YAML file",
    overridden: str = "one value",
) -> None:
    """Adds SOURCE and --set.

    Args:
        parser: A verb's parser.
        nargs: How many SOURCEs may be given, as argparse has it; None is one.
        source: What SOURCE may be.
        overridden: What --set overrides.
    """
    parser.add_argument("source", metavar="SOURCE", nargs=nargs, help=source)
    parser.add_argument(
        "--set",
        dest="overrides",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help=f"overrides {overridden}, which is YAML: --set trainer.train_steps=500; may be given several times",
    )


def add_workdir(parser: argparse.ArgumentParser, what: str) -> None:
    """Adds --workdir; `what` is done there."""
    parser.add_argument(
        "--workdir", metavar="DIR", type=os.path.expanduser, default="runs", help=f"{what} (default: %(default)s)"
    )
