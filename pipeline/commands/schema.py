"""`tfx-estimator schema`: prints the declaration's JSON Schema, for editors."""

from __future__ import annotations

import argparse
import json

HELP = "print the declaration's JSON Schema, for editors"
EPILOG = """\
With the schema in a file, an editor with the YAML language server completes keys and shows mistakes:

  tfx-estimator schema declaration.schema.json

and, as the first line of a declaration:

  # yaml-language-server: $schema=declaration.schema.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("file", metavar="FILE", nargs="?", help="the file to write (default: standard output)")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    """Prints or writes the schema."""
    from tfx_estimator.pipeline.base.text import one_line
    from tfx_estimator.pipeline.commands.shared import say, write_file
    from tfx_estimator.pipeline.config import Declaration
    from tfx_estimator.pipeline.config.json_schema import json_schema

    text = json.dumps(json_schema(Declaration), indent=2) + "\n"
    if args.file is None:
        say(text.rstrip("\n"))
    else:
        write_file(args.file, text, force=args.force)
        name = one_line(args.file)
        say(f"wrote {name}; first line of a declaration: # yaml-language-server: $schema={name}")
    return 0
