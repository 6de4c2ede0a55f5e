"""Fixtures: processes with TensorFlow and Keras alone, and Estimators that have trained."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.forked_tasks import SERVERS
from tfx_estimator.pipeline.base.stack import stacks

KERAS = ["0", *([pytest.param("1", marks=pytest.mark.long)] if stacks.has_keras_3() else [])]


class Process:
    """Runs Python files in forks of a process that has imported TensorFlow and one Keras."""

    def __init__(self, log: Path, legacy: str) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [sys.executable, str(Path(__file__).with_name("server.py")), str(log)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(command, **pipes, env={**environment, stacks.KERAS: legacy})
        self._log = log
        SERVERS.add(self._process.pid)

    def run(self, *words: str) -> str:
        """Returns the last line of what a file prints."""
        print(json.dumps(words), file=self._process.stdin, flush=True)
        code, printed = self._process.stdout.readline().strip(), self._log.read_text(errors="replace")
        if code != "0":
            raise AssertionError(printed[-4000:])
        return printed.rstrip().rpartition("\n")[2]

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Process]]:
    """Returns the process of Keras 3, `0`, or of Keras 2, `1`."""
    made: dict[str, Process] = {}

    def get(legacy: str) -> Process:
        if legacy not in made:
            made[legacy] = Process(tmp_path_factory.mktemp("process") / "log", legacy)
        return made[legacy]

    yield get
    for each in made.values():
        each.close()


@pytest.fixture(autouse=True)
def fresh(processes: Callable[[str], Process], monkeypatch: pytest.MonkeyPatch) -> None:
    """Forks the process of a proof."""
    from tfx_estimator.model_fn.bridge import fresh

    def start(scratch: str, command: Sequence[str], given: Sequence[str], is_keras_3: bool = True) -> Any:
        files = (f"{scratch}/{name}" for name in (*given, fresh.RESULT))
        processes("0" if is_keras_3 else "1").run(command[-1], *files)
        return pickle.loads(Path(scratch, fresh.RESULT).read_bytes())

    monkeypatch.setattr(fresh, "start", start)


@pytest.fixture(scope="session")
def tf() -> Any:
    """TensorFlow with tf.estimator."""
    import tfx_estimator

    tfx_estimator.bring_back_estimator()
    import tensorflow

    return tensorflow
