"""How a task tells the supervisor of its progress: one JSON object a line in a file, and each step in another."""

from __future__ import annotations

import json
import os
import pathlib
import threading
import time
from typing import Any

from tfx_estimator.components.trainer.protocol.step_cell import StepCell

_BEAT_SECONDS = 1.0


class ProgressWriter:
    """Appends events to the progress file, and keeps the present step in one beside it.

    Args:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._step = _step_cell(path)

    def write(self, event: str, **fields: Any) -> None:
        """Appends one event.

        Args:
            event: `started`, `step`, `evaluating`, `evaluated`, `exported`, `stopped` and the like.
            **fields: What belongs to it.
        """
        line = json.dumps({"event": event, "time": time.time(), **fields}) + "\n"
        # One write of a whole line: a reader never sees half an event of a living task.
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(line)

    def at(self, step: int) -> None:
        """Notes the global step that is done; for every step.

        Args:
            step: The global step.
        """
        self._step.set(step)


class ProgressReader:
    """Reads the events that are new since the last call, and the present step.

    Args:
        path: The file; it may not be there yet.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._step = _step_cell(path)
        self._offset = 0

    def read(self) -> list[dict[str, Any]]:
        """Returns the new events, oldest first."""
        if not os.path.exists(self._path):
            return []
        with open(self._path, "rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [json.loads(line) for line in whole.splitlines()]

    def step(self) -> int:
        """Returns the global step that was done last; -1 before the first."""
        return self._step.get()


def _step_cell(path: str) -> StepCell:
    return StepCell(f"{path}.step")


def beat(path: str) -> None:
    """Touches a file every second, from a thread, as long as the process runs and is not stopped.

    That a task beats is not progress; that it does not beat tells a stopped one from one that waits for it.

    Args:
        path: The file.
    """

    def go_on() -> None:
        file = pathlib.Path(path)
        while True:
            file.touch()
            time.sleep(_BEAT_SECONDS)

    threading.Thread(target=go_on, name="heartbeat", daemon=True).start()
