"""`tfx-estimator show`: the resolved declaration, with where each value came from."""

from __future__ import annotations

import argparse
import json

from tfx_estimator.pipeline.commands.arguments import add_declaration

HELP = "print the resolved declaration, with where each value came from"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    add_declaration(parser)
    parser.add_argument("--json", action="store_true", help="JSON: {declaration, origins, source, file}")


def run(args: argparse.Namespace) -> int:
    """Prints the declaration; the YAML is itself a declaration that loads."""
    from tfx_estimator.pipeline.config import load
    from tfx_estimator.pipeline.config.render import render

    loaded = load(args.source, args.overrides)
    values = loaded.declaration.dict()
    if args.json:
        fields = {"declaration": values, "origins": loaded.origins, "source": loaded.source, "file": loaded.file}
        print(json.dumps(fields, indent=2))
    else:
        print(render(values, loaded.origins), end="")
    return 0
