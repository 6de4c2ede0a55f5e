"""What a step of training costs, as the tasks report it: between two reports that have nothing but steps between."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

from tfx_estimator.components.trainer.protocol.events import Event
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, PS, TaskSpec


@dataclasses.dataclass
class _Task:
    """What one task reported; `reports` are those of steps since it did something else."""

    reports: int = 0
    before: Optional[dict[str, Any]] = None
    steps: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    peak_rss: float = 0.0


class Cost:
    """Sums up what steps cost; the first one of a session, which builds and warms up, and evaluations do not count."""

    def __init__(self) -> None:
        self._tasks: dict[str, _Task] = {}
        self._complete = True

    def hear(self, task_spec: TaskSpec, event: dict[str, Any]) -> None:
        """Takes one event.

        Args:
            task_spec: Of the task that reports it.
            event: What it reports.
        """
        if task_spec.type == PS:
            # A parameter server works for the steps of others, and does not report its own cost.
            self._complete = False
        if not task_spec.trains:
            return
        task = self._tasks.setdefault(task_spec.name, _Task())
        if event["event"] is not Event.STEP or "cpu" not in event:
            task.reports = 0
            return
        before, task.before = task.before, event
        task.reports += 1
        task.peak_rss = max(task.peak_rss, event["peak_rss"])
        # The first report comes before the first step.
        if before is not None and task.reports > 2 and event["step"] > before["step"]:
            task.steps += event["step"] - before["step"]
            task.seconds += event["time"] - before["time"]
            task.cpu += event["cpu"] - before["cpu"]

    def properties(self, batch: Optional[int]) -> dict[str, float]:
        """Returns what is known: `steady_seconds`, `steady_examples_per_second`, `cpu_micros_per_example`, `peak_rss`.

        Args:
            batch: Global, in examples; None if it is not known.
        """
        tasks = [task for task in self._tasks.values() if task.steps]
        found: dict[str, float] = {}
        chief = self._tasks.get(f"{CHIEF}-0")
        if batch and chief and chief.seconds > 0:
            found["steady_seconds"] = chief.seconds
            found["steady_examples_per_second"] = chief.steps * batch / chief.seconds
        if tasks and self._complete:
            if batch:
                found["cpu_micros_per_example"] = 1e6 * sum(task.cpu / task.steps for task in tasks) / batch
            found["peak_rss"] = sum(task.peak_rss for task in tasks)
        return found
