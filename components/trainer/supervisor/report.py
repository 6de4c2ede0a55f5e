"""Aggregates the events of a training's tasks, and logs them."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from typing import Any, Optional

from tfx_estimator.components.trainer.protocol.events import Event
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, PS, TaskSpec
from tfx_estimator.components.trainer.supervisor.outcome import Outcome, Restart
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.base.text import duration
from tfx_estimator.pipeline.config.trainer import TrainerSection

# Events that are not logged.
_NOT_LOGGED = (Event.EVALUATING, Event.EXPORTING, Event.WAITING, Event.SERVING, Event.TRAINED)

# Log prefixes of events with a text.
_PREFIXES = {
    Event.CHOSEN: "exported is ",
    Event.SCALED: "learning rate ",
    Event.STAGED: "pipeline: ",
    Event.WARMED: "",
    Event.ENDED_EARLY: "stopped early ",
    Event.PROFILED: "",
}
# Custom properties of the model_run artifact for events with a text.
_PROPERTIES = {
    Event.CHOSEN: "exported",
    Event.ENDED_EARLY: "stopped_early",
    Event.SCALED: "learning_rate",
    Event.STAGED: "stages",
}
# Number of reports that the pace is computed from.
_RECENT = 10

logger = get_logger("trainer")


class Report:
    """Aggregates the events of all tasks and attempts.

    Args:
        batch_size: Global, in examples; None if unknown, as with the user's input_fn.
        total_steps: Steps to train; None if unknown, until a task reports the number.
    """

    def __init__(self, batch_size: Optional[int], total_steps: Optional[int]) -> None:
        self._batch = batch_size
        self._total = total_steps
        self._started = time.monotonic()
        self._first: Optional[int] = None
        self._last: Optional[int] = None
        self._first_loss = 0.0
        self._skipped: Optional[int] = None
        self._repeated = 0
        # The current attempt: time and step of its first report and of its last ones.
        self._began: Optional[tuple[float, int]] = None
        self._recent: deque[tuple[float, int]] = deque(maxlen=_RECENT)
        # Time and step after the first step, which includes building the graph.
        self._built = (0.0, 0)
        self._rates: list[tuple[float, float]] = []
        self._metrics: dict[str, float] = {}
        self._cost = Cost()
        self._restarts: list[Restart] = []
        self._noticed: list[str] = []
        # The last event of each kind with a text.
        self._texts: dict[Event, dict[str, Any]] = {}
        # Time and step of the first failure since the last step.
        self._failed: Optional[tuple[float, int]] = None
        self.publishes = True

    @classmethod
    def of(cls, section: Optional[TrainerSection]) -> Report:
        """Returns the report for a declared training, or for one without a declaration."""
        return cls(section.global_batch_size, section.train_steps) if section else cls(None, None)

    def record(self, task_spec: TaskSpec, event: dict[str, Any]) -> None:
        """Records and logs one event."""
        self._cost.record(task_spec, event)
        kind = event["event"]
        if kind is Event.STEP:
            if task_spec.type == CHIEF or (task_spec.trains and not self.publishes):
                self._step(event)
        elif kind is Event.NOTICED:
            if event["text"] not in self._noticed:  # a restart may repeat it
                self._noticed.append(event["text"])
                logger.warning(event["text"])
        elif kind is Event.EVALUATED:
            self._metrics = event["metrics"]
            # If an earlier run has done all steps, this is the first event with a step.
            self._first = event["step"] if self._first is None else self._first
            self._last = max(self._last or 0, event["step"])
            values = ", ".join(f"{name} {value:.4f}" for name, value in self._metrics.items())
            logger.info(f"evaluation at step {event['step']}: {values}")
        elif kind in _PREFIXES:
            self._texts[kind] = event
            self._metrics = event.get("metrics", self._metrics)
            logger.info(_PREFIXES[kind] + event["text"])
        elif kind not in _NOT_LOGGED:
            who = "" if task_spec.type == CHIEF else f"{task_spec.name} "
            pid = f", pid {event['pid']}" if "pid" in event else ""
            logger.info(f"{who}{kind.value}{pid}")

    def restarted(self, restart: Restart) -> None:
        """Records and logs a restart."""
        self._restarts.append(restart)
        since, step = self._failed or (time.monotonic(), restart.step)
        self._failed = (since, max(step, restart.step))
        self._close_attempt()
        logger.warning(f"{restart.cause} at step {max(restart.step, 0)}; {restart.what}")

    def steps_per_second(self) -> float:
        """Returns the pace of the last reports; 0 before there are two."""
        recent = self._recent
        seconds = recent[-1][0] - recent[0][0] if len(recent) > 1 else 0.0
        return (recent[-1][1] - recent[0][1]) / seconds if seconds > 0 else 0.0

    def outcome(self) -> Outcome:
        """Returns the result of the training."""
        self._close_attempt()
        # No step follows a failure after the last step.
        self._resumed(self._last or 0)
        seconds = sum(rate[1] for rate in self._rates)
        steps = sum(rate[0] for rate in self._rates)
        return Outcome(
            first_step=self._first,
            last_step=self._last,
            seconds=time.monotonic() - self._started,
            examples_per_second=steps * self._batch / seconds if self._batch and seconds > 0 else None,
            metrics=self._metrics,
            restarts=tuple(self._restarts),
            extra_steps=self._extra(),
            publishes=self.publishes,
            numbers={
                # Steps without an update, because a gradient overflowed in float16.
                "skipped_steps": self._skipped,
                "exported_step": self._texts[Event.CHOSEN]["step"] if Event.CHOSEN in self._texts else None,
                **self._cost.properties(self._batch),
            },
            notes={_PROPERTIES[kind]: event["text"] for kind, event in self._texts.items() if kind in _PROPERTIES},
        )

    def _extra(self) -> Optional[int]:
        if self._last is None or self._total is None:
            return None
        return max(self._last - self._total, 0) + self._repeated

    def _step(self, event: dict[str, Any]) -> None:
        step = event["step"]
        self._total = event.get("total") or self._total
        self._skipped = event.get("skipped_steps", self._skipped)
        self._repeated = event.get("extra_steps", self._repeated)
        if self._first is None:
            self._first = step
        self._resumed(step)
        self._last = step
        self._recent.append((event["time"], step))
        self._began = self._began or self._recent[0]
        pace = self.steps_per_second()
        loss = f", loss {event['loss']:.4f}" if "loss" in event else ""
        rate = f"{pace * self._batch:,.0f} examples/s" if self._batch else f"{pace:,.1f} steps/s"
        logger.info(f"step {step}/{self._total or '?'}{loss}{f', {rate}' if pace else ''}{self._left(step)}")
        now, todo = abs(event.get("loss", 0.0)), "lower trainer.optimizer.learning_rate or clip the gradients"
        first = self._first_loss = self._first_loss or now
        if 0 < 1000 * first <= now:
            logger.warning(f"the loss has grown from {first:.4g} to {now:.4g} at step {step}: {todo}")
            self._first_loss = float("nan")  # warns once

    def _left(self, step: int) -> str:
        """Returns the time left, by the pace since the first step, including evaluations in between."""
        if len(self._recent) == 2:
            self._built = self._recent[1]
        # A single interval may be too fast, because of warm caches.
        if not self._total or len(self._recent) < 4 or not self._built[1] < step < self._total:
            return ""
        (built, first), (now, _) = self._built, self._recent[-1]
        return f", {duration((self._total - step) * (now - built) / (step - first))} left"

    def _resumed(self, step: int) -> None:
        """Sets the cost of the restarts since the last step, on the last of them."""
        if self._failed is None:
            return
        since, before = self._failed
        self._restarts[-1].lost_steps = max(before - step, 0)
        self._restarts[-1].seconds = time.monotonic() - since
        self._failed = None

    def _close_attempt(self) -> None:
        if self._began is not None and len(self._recent) > 1:
            first, last = self._began, self._recent[-1]
            self._rates.append((last[1] - first[1], last[0] - first[0]))
        self._began = None
        self._recent.clear()


@dataclasses.dataclass
class _Task:
    """A task's cost; `reports` counts STEP events since its session began."""

    reports: int = 0
    before: Optional[dict[str, Any]] = None
    steps: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    peak_rss: float = 0.0


class Cost:
    """The cost of steps, without the first one of a session, which builds and warms up, and without evaluations."""

    def __init__(self) -> None:
        self._tasks: dict[str, _Task] = {}
        self._complete = True

    def record(self, task_spec: TaskSpec, event: dict[str, Any]) -> None:
        """Adds the cost of one event."""
        if task_spec.type == PS:
            # A parameter server works for the steps of others, but does not report its cost.
            self._complete = False
        if not task_spec.trains:
            return
        task = self._tasks.setdefault(task_spec.name, _Task())
        if event["event"] is not Event.STEP or "cpu" not in event:
            # After an evaluation the session continues: its first step is done.
            task.reports = 0 if event["event"] is Event.STARTED else min(task.reports, 1)
            return
        if "total" in event:
            task.reports = 0  # a session begins
        before, task.before = task.before, event
        task.reports += 1
        task.peak_rss = max(task.peak_rss, event["peak_rss"])
        # The first report comes before the first step.
        if before is not None and task.reports > 2 and event["step"] > before["step"]:
            task.steps += event["step"] - before["step"]
            task.seconds += event["time"] - before["time"]
            task.cpu += event["cpu"] - before["cpu"]

    def properties(self, batch: Optional[int]) -> dict[str, float]:
        """Returns `steady_seconds`, `steady_examples_per_second`, `cpu_micros_per_example`, `peak_rss`, where known.

        Args:
            batch: Global, in examples; None if unknown.
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
