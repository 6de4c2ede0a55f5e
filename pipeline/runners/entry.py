"""The entry point of a step that needs the user's own modules: fetches their wheel, then executes the command.

python -m tfx_estimator.pipeline.runners.entry --home gs://… --modules NAME.whl --sha256 HEX -- COMMAND…
"""

from __future__ import annotations

import argparse
import hashlib
import io
import itertools
import os
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Optional

from tfx_estimator.pipeline.base.ending import leaving, scratch
from tfx_estimator.pipeline.base.environment import check_release
from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.config.paths import is_address

if TYPE_CHECKING:
    from tfx_estimator.pipeline.user_source.pack import Packed

MODULE = "tfx_estimator.pipeline.runners.entry"
COMMAND = ("python", "-m", MODULE)
MODULES = "--modules"
FOLDER = "modules"
# Makes a step of Kubeflow Pipelines 2 run TFX's driver first, which finds the span of its input, as services do.
DRIVER = "--tfx_estimator_driver"


def arguments(home: str, modules: Packed, then: Sequence[str]) -> list[str]:
    """Returns the arguments of COMMAND.

    Args:
        home: The pipeline's folder, as the container sees it; its folder `modules` has the wheel.
    """
    return ["--home", home, MODULES, modules.name, "--sha256", modules.sha256, "--", *then]


def wheel_of(container: Mapping[str, Any]) -> Optional[str]:
    """Returns the name of the wheel that a container fetches, empty without an argument; None if it fetches none."""
    if tuple(container.get("command", ())) != COMMAND:
        return None
    words = [*container.get("args", ())]
    return next((name for flag, name in itertools.pairwise(words) if flag == MODULES), "")


def main(argv: Sequence[str]) -> NoReturn:
    """Unpacks the modules into a folder of PYTHONPATH, and executes the command."""
    check_release()
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}")
    parser.add_argument("--home", required=True)
    parser.add_argument(MODULES, required=True)
    parser.add_argument("--sha256", required=True)
    parser.add_argument("then", nargs=argparse.REMAINDER)
    args = parser.parse_args(argv)
    folder = scratch.made_for_next()
    with zipfile.ZipFile(io.BytesIO(_fetch(os.path.join(args.home, FOLDER, args.modules), args.sha256))) as packed:
        packed.extractall(folder)
    then = args.then[1:] if args.then[:1] == ["--"] else args.then
    path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    # `python` is this process's interpreter; the first one on the path may be another.
    program = sys.executable if then[0] == "python" else then[0]
    os.execvpe(program, [program, *then[1:]], {**os.environ, "PYTHONPATH": path})


def _fetch(place: str, sha256: str) -> bytes:
    todo = "copy the wheel that `tfx-estimator compile` wrote there"
    try:
        data = _read(place)
    except Exception as error:  # file systems have errors of their own
        what = f"the user's modules cannot be read from {place}: {error}"
        raise PipelineError(what, expected="the wheel of this compiled pipeline", todo=todo) from error
    if hashlib.sha256(data).hexdigest() != sha256:
        what = f"{place} is not the wheel that this pipeline was compiled with"
        raise PipelineError(what, expected=f"a file with the SHA-256 {sha256}", todo=todo)
    return data


def _read(place: str) -> bytes:
    if not is_address(place):
        # Without TFX, which takes seconds to import, and again in the command.
        return Path(place).read_bytes()
    from tfx.dsl.io import fileio

    with fileio.open(place, "rb") as file:
        return file.read()


if __name__ == "__main__":
    sys.exit(leaving.exit_code(lambda: main(sys.argv[1:])))
