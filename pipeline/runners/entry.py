"""What a container of a compiled pipeline starts with where the user's own modules travel: fetches them, goes on.

python -m tfx_estimator.pipeline.runners.entry --modules gs://…/modules/NAME.whl --sha256 HEX -- COMMAND…
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from typing import NoReturn

from tfx_estimator.pipeline.errors import PipelineError, TfxEstimatorError

MODULE = "tfx_estimator.pipeline.runners.entry"


def command(modules: str, sha256: str, then: Sequence[str]) -> list[str]:
    """Returns the container's command.

    Args:
        modules: Where the wheel is, for the container.
        sha256: Of the wheel.
        then: The command that wants the modules.
    """
    return ["python", "-m", MODULE, "--modules", modules, "--sha256", sha256, "--", *then]


def main(argv: Sequence[str]) -> NoReturn:
    """Unpacks the modules, where every process that comes of the command imports them, and becomes the command."""
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}")
    parser.add_argument("--modules", required=True)
    parser.add_argument("--sha256", required=True)
    parser.add_argument("then", nargs=argparse.REMAINDER)
    args = parser.parse_args(argv)
    folder = tempfile.mkdtemp(prefix="tfx-estimator-modules-")
    with zipfile.ZipFile(io.BytesIO(_fetch(args.modules, args.sha256))) as packed:
        packed.extractall(folder)
    then = args.then[1:] if args.then[:1] == ["--"] else args.then
    path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    os.execvpe(then[0], then, {**os.environ, "PYTHONPATH": path})


def _fetch(place: str, sha256: str) -> bytes:
    from tfx.dsl.io import fileio

    todo = "copy the wheel that `tfx-estimator compile` wrote there"
    try:
        with fileio.open(place, "rb") as file:
            data = file.read()
    except Exception as error:  # file systems have errors of their own
        what = f"the user's modules cannot be read from {place}: {error}"
        raise PipelineError(what, expected="the wheel that belongs to this compiled pipeline", todo=todo) from error
    if hashlib.sha256(data).hexdigest() != sha256:
        what = f"{place} is not the wheel that this pipeline was compiled with"
        raise PipelineError(what, expected=f"a file with the SHA-256 {sha256}", todo=todo)
    return data


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except TfxEstimatorError as end:
        print(end, file=sys.stderr)  # noqa: T201
        sys.exit(end.exit_code)
