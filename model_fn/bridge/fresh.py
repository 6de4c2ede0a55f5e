"""A fresh process with Keras 3: the one that has called an Estimator has Keras 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from tfx_estimator.pipeline.base.ending import keeper
from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.base.stack.stacks import KERAS

RESULT = "result.json"
# Keras 3 imports them where they are installed, which takes as long as two thirds of TensorFlow's import.
_LIGHT = 'import sys; sys.modules.update(dict.fromkeys(("matplotlib", "sklearn")))'


def alone(file: str) -> list[str]:
    """Returns a command that runs a file in a new Python, which need not find this project."""
    return [sys.executable, "-c", f"{_LIGHT}; import runpy; runpy.run_path(sys.argv.pop(1), run_name='__main__')", file]


def python(program: str) -> list[str]:
    """Returns a command that runs a program in a new Python, which finds the same modules as this one."""
    folders = [path or os.getcwd() for path in sys.path if isinstance(path, str)]
    return [sys.executable, "-c", f"{_LIGHT}; sys.path[:] = {folders!a}; {program}"]


def start(scratch: str, command: Sequence[str], given: Sequence[str]) -> dict[str, Any]:
    """Runs a command with Keras 3, and returns its result.

    Args:
        scratch: The folder that both processes share.
        given: Names of its input files; the command's further arguments are their paths and that of the result.
    """
    files = [os.path.join(scratch, name) for name in (*given, RESULT)]
    log, result, environment = os.path.join(scratch, "log"), files[-1], {**os.environ, KERAS: "0"}
    with open(log, "wb") as file:
        code = subprocess.run(
            keeper.dying_with_this([*command, *files]),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            check=False,
        ).returncode
    if not os.path.exists(result):
        with open(log, encoding="utf-8", errors="replace") as text:
            last = [line.rstrip() for line in text if line.strip()][-3:]
        raise PipelineError(
            "\n".join([f"the process of Keras 3 ended with exit code {code}", *last]),
            expected="a result",
            todo="see its last lines above",
        )
    with open(result, encoding="utf-8") as text:
        return dict(json.load(text))
