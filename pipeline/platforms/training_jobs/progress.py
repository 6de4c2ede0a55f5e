"""The progress of the tasks in pods, read from the files that they write into the shared training folder."""

from __future__ import annotations

import math
import os
import re
import time

from tfx_estimator.components.trainer.protocol.events import Event, ProgressReader
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, TaskSpec
from tfx_estimator.components.trainer.supervisor.outcome import Outcome, Restart
from tfx_estimator.components.trainer.supervisor.report import Report
from tfx_estimator.pipeline.base.files import read_json

_FILE = re.compile(r"([a-z_]+)-(\d+)\.attempt-(\d+)\.progress\.jsonl")


class Progress:
    """Reads the reports of all pods' tasks, as a supervisor reads those of this machine's tasks.

    Args:
        logs: Folder of the tasks' files.
        after: The last attempt of earlier trainings, whose files are ignored.
    """

    def __init__(self, logs: str, report: Report, after: int) -> None:
        self._logs, self._report, self._after = logs, report, after
        self._readers: dict[str, tuple[TaskSpec, ProgressReader]] = {}
        self.step = -1
        self._attempt = 0
        self._noted = False
        # When a restart was last recorded.
        self.noted_at = -math.inf

    def restarted(self, cause: str, what: str) -> None:
        """Records a restart.

        Args:
            cause: The task and what happened to it.
        """
        # Reads the tasks' events first, because these happened before the restart.
        self.read()
        self._note(cause, what)
        self._noted = True

    def read(self) -> None:
        """Passes new events on to the report."""
        for name in sorted(os.listdir(self._logs)):
            if name not in self._readers and (found := _FILE.fullmatch(name)) and int(found[3]) > self._after:
                task = TaskSpec(found[1], int(found[2]), int(found[3]))
                self._readers[name] = task, ProgressReader(os.path.join(self._logs, name))
        events = [(task, event) for task, reader in self._readers.values() for event in reader.read()]
        for task, event in sorted(events, key=lambda each: each[1]["time"]):
            if event["event"] is Event.STEP and task.type == CHIEF:
                self._chief_at(task.attempt, event["step"])
            self._report.record(task, event)

    def outcome(self) -> Outcome:
        """Returns the training's outcome so far."""
        self.read()
        return self._report.outcome()

    def _chief_at(self, attempt: int, step: int) -> None:
        if attempt > self._attempt:
            if self._attempt and not self._noted:
                # The supervisor in a single pod has restarted its task, or the cause was not observed.
                cause = read_json(os.path.join(self._logs, f"{CHIEF}-0.attempt-{self._attempt}.error.json")) or {}
                self._note(f"{CHIEF}-0 failed: {cause.get('type', 'without an error')}", "it was restarted")
            self._attempt, self._noted = attempt, False
        self.step = max(self.step, step)

    def _note(self, cause: str, what: str) -> None:
        self.noted_at = time.monotonic()
        self._report.restarted(Restart(cause, what, self.step))


def last_attempt(logs: str) -> int:
    """Returns the last attempt of which a task has written a file."""
    found = (re.search(r"\.attempt-(\d+)\.", name) for name in os.listdir(logs))
    return max((int(each[1]) for each in found if each), default=0)
