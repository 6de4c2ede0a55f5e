"""What the tasks of somebody else's cluster tell each other: they share only the training folder, perhaps in a store.

The chief names the step to stop at. The evaluator gives a sign of life, as the chief waits for its model: what it
writes there anyway comes at the end of an evaluation, which may be long.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from typing import Any

from tfx.dsl.io import fileio

from tfx_estimator.components.files import read_json, write_whole
from tfx_estimator.components.trainer.protocol.events import ask_to_stop

_STOP, _BEAT = "stop.json", "evaluator.json"
# A store is written to every now and then; a shorter deadline wants more.
_EVERY_SECONDS, _PER_TIMEOUT = 30.0, 10


class EvaluatorBeat:
    """The evaluator's side: a file beside the checkpoints, which becomes another one as long as it gets on.

    Args:
        timeout: Seconds without progress after which the chief gives up.
        done: Has the evaluator exported.
    """

    def __init__(self, training_dir: str, timeout: float, done: Callable[[], bool]) -> None:
        self._folder, self._done = training_dir, done
        self._every = min(_EVERY_SECONDS, timeout / _PER_TIMEOUT)
        self._told, self._at = 0.0, -self._every

    def tell(self, worked: float) -> None:
        """Writes that the evaluator got on, if it has since the last time."""
        now = time.monotonic()
        if worked <= self._told or now - self._at < self._every:
            return
        self._told, self._at = worked, now
        with contextlib.suppress(Exception):  # a store that is away
            # The chief may have published the folder: no store knows that it has gone.
            if fileio.exists(self._folder) and not self._done():
                write_whole(os.path.join(self._folder, _BEAT), f"{time.time()}")


def read(training_dir: str) -> Any:
    """Returns what the evaluator told last; None if it has told nothing."""
    return read_json(os.path.join(training_dir, _BEAT))


def forget(training_dir: str) -> None:
    """Removes it: training is over."""
    with contextlib.suppress(Exception):  # a store that is away
        if fileio.exists(path := os.path.join(training_dir, _BEAT)):
            fileio.remove(path)


class StoredStop:
    """The chief's word, beside the checkpoints."""

    def __init__(self, training_dir: str, stop_file: str) -> None:
        self._path = os.path.join(training_dir, _STOP)
        self._stop_file = stop_file
        # A request from before this moment belongs to an earlier training.
        self._begun = time.time()

    def ask(self, step: int, over: bool) -> None:
        """Asks all tasks to stop, as `ask_to_stop` does."""
        with contextlib.suppress(Exception):  # the store does not answer: this task stops, and the others lose it
            write_whole(self._path, json.dumps({"step": step, "over": over, "at": time.time()}))
        ask_to_stop(self._stop_file, step, over)

    def hear(self) -> bool:
        """Asks this task to stop if the chief has said so; returns whether it has."""
        said: dict[str, Any] = {}
        with contextlib.suppress(Exception), fileio.open(self._path) as file:  # no request, or no answer
            said = json.loads(file.read())
        if said.get("at", 0.0) < self._begun:
            return False
        ask_to_stop(self._stop_file, said["step"], said["over"])
        return True

    def forget(self) -> None:
        """Removes the word: training begins, or is over."""
        with contextlib.suppress(Exception):
            fileio.remove(self._path)
