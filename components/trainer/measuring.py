"""Measures a training between two of its steps, for `tfx-estimator bench`.

The environment, which the tasks inherit from the supervisor, requests it. A task reads its clocks between two of its
steps; a parameter server, which has no steps, between the chief's. The warm-up begins once every task has done a step:
with parameter servers, workers begin at different times, and the first one does the first steps alone.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.components.trainer.observers import Observer
from tfx_estimator.components.trainer.protocol.events import kilobytes, read_usage
from tfx_estimator.components.trainer.protocol.measurement import TaskMeasurement, Window
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, TaskSpec

_POLL_SECONDS = 0.02


@dataclasses.dataclass(frozen=True)
class _Clock:
    """The clocks of this process at one moment.

    Args:
        wall: Monotonic seconds.
        cpu: CPU seconds of this process.
        busy: CPU seconds of the cores, for any process.
    """

    step: int
    wall: float
    cpu: float
    busy: float

    @classmethod
    def now(cls, step: int, cores: Sequence[int]) -> _Clock:
        """Reads the clocks."""
        return cls(step, time.monotonic(), time.process_time(), _busy_seconds(cores))


class Meter(Observer):
    """Reads the clocks at both edges of the window: after the first execution that ends at the edge or later.

    It does not split an execution of several steps: TensorFlow identifies a cluster's messages by their turn in the
    execution's loop, so all tasks must have the same executions.

    Args:
        examples_per_step: Examples in each of this task's steps, if it is constant.
    """

    def __init__(self, window: Window, task: TaskSpec, examples_per_step: float = 0.0) -> None:
        self._window = window
        self._task = task
        self._examples_per_step = examples_per_step
        self._step = 0
        self._edge: Optional[int] = None
        self._begin: Optional[_Clock] = None
        self._own_steps = 0
        self._examples: Optional[float] = 0
        self._began = False
        self.ended = False
        # True if the batch is constant.
        self.constant = False

    @classmethod
    def of_environment(cls, task: TaskSpec, examples_per_step: float = 0.0) -> Optional[Meter]:
        """Returns the requested meter; None without a request, or for a task that does no steps."""
        window = Window.of_environment()
        return cls(window, task, examples_per_step) if window is not None and task.trains else None

    def begin(self, step: int) -> None:
        """See Observer."""
        self._step = step

    def after_step(self, step: int, values: Mapping[str, float]) -> None:
        """See Observer; for steps that this task does alone, or synchronously with the others."""
        steps, self._step = step - self._step, step
        self.done(step, steps, steps * self._examples_per_step)

    def is_due(self, step: int) -> bool:
        """True if `done` must be called at exactly this step."""
        return self._edge is None or step >= self._edge

    def done(self, step: int, own_steps: int, examples: Optional[float]) -> None:
        """Measures at the first and the last step of the window.

        Args:
            step: Global steps done.
            own_steps: This task's steps since the last call.
            examples: Examples in these steps; None if unknown.
        """
        if self.ended:
            return
        if not self._began:
            self._began = True
            self._window.mark_started(self._task.name)
        if self._edge is None:
            if self._window.have_started():
                self._edge = step + self._window.warmup
            return
        self._own_steps += own_steps
        self._examples = None if examples is None or self._examples is None else self._examples + examples
        if step < self._edge:
            return
        clock = _Clock.now(step, self._window.cores)
        if self._begin is None:
            self._begin, self._edge = clock, step + self._window.steps
            self._own_steps = self._examples = 0
            self._mark("begin")
            return
        self.ended = True
        self._mark("end")
        examples = None if self._examples is None else round(self._examples)
        own = {"own_steps": self._own_steps, "examples": examples, "constant_input": self.constant}
        _save(self._window, self._task.name, self._begin, clock, **own)

    def _mark(self, edge: str) -> None:
        if self._task.type == CHIEF:
            self._window.mark_edge(edge)

    def wrap(self, input_fn: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the input_fn, or one that repeats its first batch if the window requests that.

        The latter has the same signature, which an Estimator inspects, and repeats only datasets.
        """
        if not self._window.constant_input:
            return input_fn

        def constant(*args: Any, **kwargs: Any) -> Any:
            made = input_fn(*args, **kwargs)
            self.constant = isinstance(made, tf.data.Dataset)
            return made.take(1).cache().repeat() if self.constant else made

        constant.__signature__ = inspect.signature(input_fn)  # type: ignore[attr-defined]
        return constant


def measure_server(task: str) -> None:
    """Measures a process without steps between the chief's edges, if the environment requests it."""
    if window := Window.of_environment():
        threading.Thread(target=_measure_between, args=(window, task), name="measure", daemon=True).start()


def _measure_between(window: Window, task: str) -> None:
    clocks = []
    for edge in ("begin", "end"):
        while not os.path.exists(window.edge(edge)):
            time.sleep(_POLL_SECONDS)
        clocks.append(_Clock.now(0, window.cores))
    _save(window, task, clocks[0], clocks[1])


def _save(window: Window, task: str, begin: _Clock, end: _Clock, **own: Any) -> None:
    TaskMeasurement(
        task,
        end.step - begin.step,
        end.wall - begin.wall,
        end.cpu - begin.cpu,
        end.busy - begin.busy,
        int(read_usage()["peak_rss"]),
        kilobytes("/proc/self/smaps_rollup", "Pss") << 10,
        **own,
    ).save(window.folder)


def _busy_seconds(cores: Sequence[int]) -> float:
    """Returns the busy CPU seconds of cores since the machine started, including those stolen by its host.

    Source: proc_stat(5).
    """
    names = {f"cpu{core}" for core in cores}
    with open("/proc/stat", encoding="utf-8") as file:
        lines = [line.split() for line in file if line.startswith("cpu")]
    # user, nice, system, idle, iowait, irq, softirq, steal
    ticks = sum(int(line[place]) for line in lines if line[0] in names for place in (1, 2, 3, 6, 7, 8))
    return ticks / os.sysconf("SC_CLK_TCK")
