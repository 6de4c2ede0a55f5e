"""Measures a task of a training between two steps, for `tfx-estimator bench`; does nothing unless it is asked to.

Asked through the environment, which the tasks inherit from the supervisor. A task reads its own clocks between two of
its steps; a parameter server, which has no steps, between the chief's.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import pathlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Optional

import tensorflow as tf

from components.trainer.cluster.orders import CHIEF, PS, Orders

# The window, as JSON.
MEASURE = "TFX_ESTIMATOR_MEASURE"
_LOOK_SECONDS = 0.02


@dataclasses.dataclass(frozen=True)
class Window:
    """What to measure.

    Args:
        folder: Where each task leaves its measurement.
        warmup: Global step at which the measurement begins.
        steps: Global steps that it lasts.
        cores: Logical CPUs that the tasks run on.
        constant_input: Train on one batch that stays in memory, in place of what the input_fn reads.
    """

    folder: str
    warmup: int
    steps: int
    cores: Sequence[int]
    constant_input: bool = False

    @classmethod
    def of_environment(cls) -> Optional[Window]:
        """Returns what is asked for; None where nothing is."""
        text = os.environ.get(MEASURE)
        return cls(**json.loads(text)) if text else None

    def to_environment(self) -> str:
        """Returns the value of the variable."""
        return json.dumps(dataclasses.asdict(self))

    def edge(self, name: str) -> str:
        """Path of the file that appears when the chief begins, or ends, its measurement.

        Args:
            name: `begin` or `end`.
        """
        return os.path.join(self.folder, name)


@dataclasses.dataclass(frozen=True)
class TaskMeasurement:
    """What one task measured.

    Args:
        task: For example `chief-0`.
        steps: Global steps, of all workers together; 0 for a parameter server.
        wall: Seconds.
        cpu: CPU seconds of the process, user and system, all threads.
        busy: CPU seconds that the window's cores worked for anybody.
        peak_rss: Largest resident memory until then, start included, in bytes.
        pss: Resident memory at the end, what is shared counted in parts, in bytes.
        constant_input: Was the batch a constant one; False where it was asked for but the input_fn returns no data set.
    """

    task: str
    steps: int
    wall: float
    cpu: float
    busy: float
    peak_rss: int
    pss: int
    constant_input: bool = False

    def save(self, folder: str) -> None:
        """Writes it, whole or not at all."""
        path = os.path.join(folder, f"{self.task}.json")
        with open(f"{path}.tmp", "w", encoding="utf-8") as file:
            json.dump(dataclasses.asdict(self), file)
        os.replace(f"{path}.tmp", path)

    @classmethod
    def load_all(cls, folder: str) -> list[TaskMeasurement]:
        """Reads those that are there, by task."""
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
        found = []
        for name in names:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                found.append(cls(**json.load(file)))
        return found


def measured(spec: dict[str, Any], orders: Orders) -> dict[str, Any]:
    """Adds the measurement to what a task trains, where the environment asks for one.

    Args:
        spec: What a trainer_fn returned.
        orders: Which task this is.

    Returns:
        The spec, with another `train_spec` where this task trains and is measured.
    """
    window = Window.of_environment()
    if window is not None and orders.type == PS:
        threading.Thread(target=_measure_server, args=(window, orders.name), name="measure", daemon=True).start()
    if window is None or not orders.trains:
        return spec
    train_spec, constant = spec["train_spec"], _ConstantInput(window.constant_input)
    hooks = (*train_spec.hooks, MeasureHook(window, orders, constant))
    return {**spec, "train_spec": train_spec._replace(hooks=hooks, input_fn=constant.wrap(train_spec.input_fn))}


class MeasureHook(tf.estimator.SessionRunHook):
    """Reads the clocks at the two ends of the window.

    Args:
        window: What to measure.
        orders: Which task this is.
        constant: Knows whether the batch is a constant one.
    """

    def __init__(self, window: Window, orders: Orders, constant: _ConstantInput) -> None:
        self._window = window
        self._orders = orders
        self._constant = constant
        self._begin: Optional[_Clock] = None
        self._edge: Optional[int] = window.warmup

    def begin(self) -> None:
        """Finds the global step."""
        self._tensor = tf.compat.v1.train.get_or_create_global_step()

    def before_run(self, run_context: Any) -> Optional[tf.estimator.SessionRunArgs]:
        """Asks for the step, which the Estimator itself asks for anyway."""
        return None if self._edge is None else tf.estimator.SessionRunArgs(self._tensor)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Measures where the step is the first or the last of the window."""
        # The step was read beside the update, so it may be the one before.
        if self._edge is None or run_values.results + 1 < self._edge:
            return
        step = int(run_context.session.run(self._tensor))
        if step < self._edge:
            return
        clock = _Clock.now(step, self._window.cores)
        if self._begin is None:
            self._begin, self._edge = clock, step + self._window.steps
            self._tell("begin")
        else:
            self._edge = None
            self._tell("end")
            _save(self._window, self._orders.name, self._begin, clock, self._constant.used)

    def _tell(self, edge: str) -> None:
        if self._orders.type == CHIEF:
            pathlib.Path(self._window.edge(edge)).touch()


class _ConstantInput:
    """Puts one batch, over and over, in the place of an input_fn's data set."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self.used = False

    def wrap(self, input_fn: Callable) -> Callable:
        """Returns an input_fn with the same arguments; an Estimator goes by their names."""
        if not self._wanted:
            return input_fn

        def constant(**arguments: Any) -> Any:
            made = input_fn(**arguments)
            self.used = isinstance(made, tf.data.Dataset)
            return made.take(1).cache().repeat() if self.used else made

        constant.__signature__ = inspect.signature(input_fn)  # type: ignore[attr-defined]
        return constant


@dataclasses.dataclass(frozen=True)
class _Clock:
    """A moment of this process."""

    step: int
    wall: float
    cpu: float
    busy: float

    @classmethod
    def now(cls, step: int, cores: Sequence[int]) -> _Clock:
        return cls(step, time.monotonic(), time.process_time(), _busy_seconds(cores))


def _measure_server(window: Window, task: str) -> None:
    """Measures this process between the chief's first and last step."""
    clocks = []
    for edge in ("begin", "end"):
        while not os.path.exists(window.edge(edge)):
            time.sleep(_LOOK_SECONDS)
        clocks.append(_Clock.now(0, window.cores))
    _save(window, task, clocks[0], clocks[1], constant_input=False)


def _save(window: Window, task: str, begin: _Clock, end: _Clock, constant_input: bool) -> None:
    TaskMeasurement(
        task,
        end.step - begin.step,
        end.wall - begin.wall,
        end.cpu - begin.cpu,
        end.busy - begin.busy,
        # Not getrusage's, which knows the largest memory of the parent as well.
        _kilobytes("/proc/self/status", "VmHWM") << 10,
        _kilobytes("/proc/self/smaps_rollup", "Pss") << 10,
        constant_input,
    ).save(window.folder)


def _kilobytes(path: str, key: str) -> int:
    """A value of one of the kernel's files about this process."""
    with open(path, encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(f"{key}:"))


def _busy_seconds(cores: Sequence[int]) -> float:
    """CPU seconds that cores worked since the machine started, those that its host took away included.

    Source: proc_stat(5).
    """
    names = {f"cpu{core}" for core in cores}
    with open("/proc/stat", encoding="utf-8") as file:
        lines = [line.split() for line in file if line.startswith("cpu")]
    # user, nice, system, idle, iowait, irq, softirq, steal
    ticks = sum(int(line[place]) for line in lines if line[0] in names for place in (1, 2, 3, 6, 7, 8))
    return ticks / os.sysconf("SC_CLK_TCK")
