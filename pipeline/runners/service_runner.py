"""Compiles a declaration for TFX's CLI: see `tfx-estimator copy`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tfx_estimator.pipeline.base.ending import leaving
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.platforms.registry import resolve
from tfx_estimator.pipeline.runners.compiling import compile_declaration, deliver


def main(declaration: str, target: str) -> None:
    """Compiles a declaration; an error ends the process with the error's exit code.

    Args:
        declaration: A preset's name, or a file, with a section `deploy`.
        target: One of `registry.TARGETS`.
    """
    # The script may continue after a success.
    if code := leaving.exit_code(lambda: _compile(declaration, target)):
        sys.exit(code)


def _compile(declaration: str, target: str) -> None:
    loaded, target = load(declaration, target=target), resolve(target)
    compiled = compile_declaration(loaded, target, os.getcwd())
    # TFX's CLI has set its runner's output file, and expects the result there.
    lines = deliver(compiled, loaded, target, Path(compiled.path), Path())
    for line in lines:
        print(one_line(line))  # noqa: T201
    for remark in loaded.remarks:
        print(remark, file=sys.stderr)  # noqa: T201
