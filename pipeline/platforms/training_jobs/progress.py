"""What the tasks in the pods report: read from the files that they write into the training folder, which is shared."""

from __future__ import annotations

import json
import math
import os
import re
import time
from typing import Any

from tfx_estimator.components.trainer.protocol.events import Event, ProgressReader
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, TaskSpec
from tfx_estimator.components.trainer.supervisor.outcome import Outcome, Restart
from tfx_estimator.components.trainer.supervisor.report import Report

_FILE = re.compile(r"([a-z_]+)-(\d+)\.attempt-(\d+)\.progress\.jsonl")


class Progress:
    """Hears the tasks of all pods, as a supervisor hears those of this machine.

    Args:
        logs: Folder of the tasks' files.
        after: Attempts up to this one were of earlier trainings.
    """

    def __init__(self, logs: str, report: Report, after: int) -> None:
        self._logs, self._report, self._after = logs, report, after
        self._readers: dict[str, tuple[TaskSpec, ProgressReader]] = {}
        self.step = -1
        self._attempt = 0
        self._noted = False
        # When a restart was noted last.
        self.noted_at = -math.inf

    def restarted(self, cause: str, what: str) -> None:
        """Takes note of a restart.

        Args:
            cause: The task and what happened to it.
        """
        # Reads the tasks' events first, because these happened before the restart.
        self.hear()
        self._note(cause, what)
        self._noted = True

    def hear(self) -> None:
        """Passes on what is new."""
        for name in sorted(os.listdir(self._logs)):
            if name not in self._readers and (found := _FILE.fullmatch(name)) and int(found[3]) > self._after:
                task = TaskSpec(found[1], int(found[2]), int(found[3]))
                self._readers[name] = task, ProgressReader(os.path.join(self._logs, name))
        heard = [(task, event) for task, reader in self._readers.values() for event in reader.read()]
        for task, event in sorted(heard, key=lambda each: each[1]["time"]):
            if event["event"] is Event.STEP and task.type == CHIEF:
                self._chief_at(task.attempt, event["step"])
            self._report.record(task, event)

    def outcome(self) -> Outcome:
        """Sums up."""
        self.hear()
        return self._report.outcome()

    def _chief_at(self, attempt: int, step: int) -> None:
        if attempt > self._attempt:
            if self._attempt and not self._noted:
                # The supervisor in a single pod has restarted its task, or nobody saw the cause.
                cause = _read(os.path.join(self._logs, f"{CHIEF}-0.attempt-{self._attempt}.error.json"))
                self._note(f"{CHIEF}-0 failed: {cause.get('type', 'without a word')}", "it was started again")
            self._attempt, self._noted = attempt, False
        self.step = max(self.step, step)

    def _note(self, cause: str, what: str) -> None:
        self.noted_at = time.monotonic()
        self._report.restarted(Restart(cause, what, self.step))


def last_attempt(logs: str) -> int:
    """Returns the last attempt of any task that has left a file."""
    found = (re.search(r"\.attempt-(\d+)\.", name) for name in os.listdir(logs))
    return max((int(each[1]) for each in found if each), default=0)


def _read(path: str) -> dict[str, Any]:
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        return json.load(file)
