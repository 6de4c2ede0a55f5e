"""The request to stop, for tasks of somebody else's cluster that share nothing but an object store.

Each has a stop file of its own there, and all must stop at one step. What several write at once a store does not put in
an order: so the chief alone names the step, and the others take over its word.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any

from tfx.dsl.io import fileio

from tfx_estimator.components.files import write_whole
from tfx_estimator.components.trainer.protocol.stop import ask_to_stop

# Time from the chief's request to the step that it names, so that the others hear of it before.
NOTICE_SECONDS = 5.0
# How long the others wait for the chief's request.
PATIENCE_SECONDS = 10.0
_FILE = "stop.json"


class StoredStop:
    """The chief's word, beside the checkpoints.

    Args:
        stop_file: This task's own: see `protocol.stop`.
    """

    def __init__(self, training_dir: str, stop_file: str) -> None:
        self._path = os.path.join(training_dir, _FILE)
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
