"""Arguments that several verbs share."""

from __future__ import annotations

import argparse


def add_declaration(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """Adds SOURCE and --set.

    Args:
        parser: A verb's parser.
        several: Whether more than one SOURCE may be given.
    """
    parser.add_argument(
        "source", metavar="SOURCE", nargs="+" if several else None, help="a preset's name, or a YAML file"
    )
    parser.add_argument(
        "--set",
        dest="overrides",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="overrides one value, which is YAML: --set trainer.train_steps=500; may be given several times",
    )
