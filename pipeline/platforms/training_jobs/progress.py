"""What the tasks in the pods report: read from the files that they write into the training folder, which is shared."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import time
from typing import Any

from tfx_estimator.components.trainer.protocol.events import Event, ProgressReader, stage_after
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, TaskFiles, TaskSpec
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
        # For each task, its last event, and other signs that it works: see `_signs`.
        self._seen: dict[str, Event] = {}
        self._shown: dict[str, tuple[float, ...]] = {}
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

    def hear(self) -> bool:
        """Passes on what is new; returns whether there was anything, or a task has shown otherwise that it works."""
        for name in sorted(os.listdir(self._logs)):
            if name not in self._readers and (found := _FILE.fullmatch(name)) and int(found[3]) > self._after:
                task = TaskSpec(found[1], int(found[2]), int(found[3]))
                self._readers[name] = task, ProgressReader(os.path.join(self._logs, name))
        heard = [(name, task, event) for name, (task, reader) in self._readers.items() for event in reader.read()]
        for name, task, event in sorted(heard, key=lambda each: each[2]["time"]):
            self._seen[name] = stage_after(self._seen.get(name), event["event"])
            if event["event"] is Event.STEP and task.type == CHIEF:
                self._chief_at(task.attempt, event["step"])
            self._report.hear(task, event)
        shown, before = {name: self._signs(name) for name in self._readers}, self._shown
        self._shown = shown
        return bool(heard) or any(signs != before.get(name, signs) for name, signs in shown.items())

    def outcome(self) -> Outcome:
        """Sums up."""
        self.hear()
        return self._report.outcome()

    def _signs(self, name: str) -> tuple[float, ...]:
        """The step that a task has done last; and, of a run_fn, which reports nothing of its own, that it is there.

        Whether it works, the supervisor in its pod knows by what it prints and computes, and ends it if it does not.
        """
        task, reader = self._readers[name]
        signs: list[float] = [reader.step()]
        if self._seen.get(name) is Event.RUNNING:
            files = TaskFiles(self._logs, task.name, task.attempt)
            for ask, path in ((os.path.getsize, files.log), (os.path.getmtime, files.alive)):
                with contextlib.suppress(FileNotFoundError):
                    signs.append(ask(path))
        return tuple(signs)

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
