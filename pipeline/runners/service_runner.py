"""Compiles a declaration for TFX's own command line: see `kubeflow_runner.py` and `vertex_runner.py`."""

from __future__ import annotations

import os
import sys

from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.errors import TfxEstimatorError
from tfx_estimator.pipeline.files import write_whole
from tfx_estimator.pipeline.runners.compiling import compile_declaration
from tfx_estimator.pipeline.text import one_line


def main(declaration: str, target: str) -> None:
    """Compiles a declaration; an error ends the process, with the error's exit code.

    Args:
        declaration: A preset's name, or a file, with a section `deploy`.
        target: One of `targets.TARGETS`.
    """
    try:
        compiled = compile_declaration(load(declaration, target=target), target, os.getcwd())
    except TfxEstimatorError as error:
        print(error, file=sys.stderr)  # noqa: T201
        sys.exit(error.exit_code)
    # TFX's command line has told its runner where to write, and takes the file from there.
    write_whole(compiled.path, compiled.text)
    print(f"wrote {one_line(compiled.path)}")  # noqa: T201
    for packed in compiled.modules:
        write_whole(packed.name, packed.data)
        print(f"wrote {packed.name}: copy it, before the pipeline runs, to {compiled.modules_uri}")  # noqa: T201
