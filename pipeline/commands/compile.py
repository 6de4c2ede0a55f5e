"""`tfx-estimator compile`: compiles the declared pipeline for a service that runs pipelines."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.commands.shared import add_declaration, add_target
from tfx_estimator.pipeline.platforms.registry import ALL_TARGETS, BY_NAME, TITLES

if TYPE_CHECKING:
    from tfx_estimator.pipeline.config import Loaded

HELP = f"compile the declared pipeline for {TITLES}"
EPILOG = f"""\
No account and no network are needed, unless data.data_dir is an address. The declaration's section `deploy` says where
the pipeline will run; `validate --target` lists what is missing.

  tfx-estimator compile mine.yaml --target {ALL_TARGETS[0]} --output mine.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    add_declaration(parser)
    add_target(parser, required=True)
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="the file to write (default: NAME.json, or NAME-TARGET.yaml)",
    )
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    """Compiles the pipeline, and writes the user's modules next to the file."""
    from tfx_estimator.pipeline.commands.shared import check_file, say
    from tfx_estimator.pipeline.config import load

    loaded = load(args.source, args.overrides, args.target)
    name = loaded.declaration.name
    # The declaration is often called NAME.yaml itself.
    output = BY_NAME[args.target].file.format(name) if args.output is None else args.output
    path = os.path.expanduser(output)
    if os.path.exists(path) and any(os.path.samefile(path, each) for each in loaded.files if os.path.exists(each)):
        raise DeclarationError(
            f"{one_line(output)} is the declaration itself",
            expected="a file of its own for what is compiled",
            todo="name another file by --output",
        )
    file = check_file(output, force=args.force)
    for line in _compile(loaded, args.target, file):
        say(one_line(line))
    for remark in loaded.remarks:
        say(remark, to_stderr=True)
    return 0


def _compile(loaded: Loaded, target: str, file: Path) -> list[str]:
    from tfx_estimator.pipeline.run.terminal import quiet

    with quiet(os.devnull):  # hides what TensorFlow and others print on import
        from tfx_estimator.pipeline.runners.compiling import compile_declaration, deliver

        compiled = compile_declaration(loaded, target)
    return deliver(compiled, loaded, target, file, file.parent)
