"""A fresh process, with Keras 3 or in TensorFlow 2: the one that has called an Estimator has Keras 2."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tfx_estimator.pipeline.base.ending import keeper
from tfx_estimator.pipeline.base.errors import PipelineError, TfxEstimatorError
from tfx_estimator.pipeline.base.files import write_whole
from tfx_estimator.pipeline.base.stack.stacks import KERAS

RESULT = "result.pickle"
# See `steps.CONFIG`.
_GPUS = "CUDA_VISIBLE_DEVICES"
# Keras 3 imports them where they are installed, which takes as long as two thirds of TensorFlow's import.
_LIGHT = 'import sys; sys.modules.update(dict.fromkeys(("matplotlib", "sklearn")))'


def alone(file: str) -> list[str]:
    """Returns a command that runs a file in a new Python, which need not find this project."""
    return [sys.executable, "-c", f"{_LIGHT}; import runpy; runpy.run_path(sys.argv.pop(1), run_name='__main__')", file]


def program(module: str, function: str) -> str:
    """Returns the program that answers `ask` by a function of a module, which may need no Keras 2."""
    given = "from tfx_estimator.pipeline.base.installed import uncollected\nwith uncollected():\n "
    return f"{given}from {module} import {function}\nfrom {__name__} import answer\nanswer({function}, *sys.argv[1:])"


def ask(command: Sequence[str], request: Any, *streams: Iterable[Any], is_keras_3: bool = True) -> Any:
    """Runs a command with a `program`, or one of the same files; returns its function's result, or raises its error."""
    with tempfile.TemporaryDirectory(prefix="tfx-estimator-") as scratch:
        for index, stream in enumerate([[request], *streams]):
            with open(os.path.join(scratch, str(index)), "wb") as file:
                for each in stream:
                    pickle.dump(each, file, protocol=pickle.HIGHEST_PROTOCOL)
        result = start(scratch, command, [str(index) for index in range(len(streams) + 1)], is_keras_3)
    if isinstance(result, TfxEstimatorError):
        raise result
    return result


def answer(function: Callable[..., dict[str, Any]], *files: str) -> None:
    """Calls a function on the files of `ask`, and writes its result, or its error, to the last one."""
    *streams, result_file = files
    result: Any
    try:
        request, *others = map(_Stream, streams)
        result = function(next(iter(request)), *others)
    except TfxEstimatorError as error:
        result = error
    write_whole(result_file, pickle.dumps(result))


class _Stream:
    """The objects in a file, which each iteration reads anew."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __iter__(self) -> Iterator[Any]:
        with open(self._name, "rb") as file:
            while file.peek(1):
                yield pickle.load(file)


def python(program: str) -> list[str]:
    """Returns a command that runs a program in a new Python, which finds the same modules as this one."""
    folders = [path or os.getcwd() for path in sys.path if isinstance(path, str)]
    return [sys.executable, "-c", f"{_LIGHT}; sys.path[:] = {folders!a}; {program}"]


def start(scratch: str, command: Sequence[str], given: Sequence[str], is_keras_3: bool = True) -> Any:
    """Runs a command on files of a shared folder, whose paths and that of its result it gets; returns the result."""
    files = [os.path.join(scratch, name) for name in (*given, RESULT)]
    log, result = os.path.join(scratch, "log"), files[-1]
    environment = {**os.environ, **({KERAS: "0"} if is_keras_3 else {}), _GPUS: "-1"}
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
            "\n".join([f"the fresh process ended with exit code {code}", *last]),
            expected="a result",
            todo="see its last lines above",
        )
    with open(result, "rb") as file:
        return pickle.load(file)
