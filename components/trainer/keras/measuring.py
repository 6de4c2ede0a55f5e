"""Measures a task of a Keras training between two executions, for `tfx-estimator bench`, where that asks for it.

An execution is not cut for it: TensorFlow knows the messages of a cluster by their turn in the execution's loop, so all
tasks must have the same ones. The window begins and ends with the first execution that ends at its edge or later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.components.trainer.measuring.clock import Clock, save
from tfx_estimator.components.trainer.protocol.measurement import Window
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, TaskSpec

InputFn = Callable[..., tf.data.Dataset]


class Meter:
    """Reads the clocks at the two ends of the window.

    Args:
        task: Which task this is.
        examples_per_step: That this task trains with.
    """

    def __init__(self, window: Window, task: TaskSpec, examples_per_step: float) -> None:
        self._window = window
        self._task = task
        self._examples_per_step = examples_per_step
        self._edge: Optional[int] = None
        self._begin: Optional[Clock] = None
        self._ended = False
        self._told = False

    @classmethod
    def of_environment(cls, task: TaskSpec, examples_per_step: float) -> Optional[Meter]:
        """Returns what is asked for; None if nothing is."""
        window = Window.of_environment()
        return cls(window, task, examples_per_step) if window is not None and task.trains else None

    def done(self, step: int) -> None:
        """Measures where an execution is the first or the last of the window."""
        if self._ended:
            return
        if not self._told:
            self._told = True
            self._window.tell_started(self._task.name)
        if self._edge is None:
            if self._window.have_started():
                self._edge = step + self._window.warmup
            return
        if step < self._edge:
            return
        clock = Clock.now(step, self._window.cores)
        if self._begin is None:
            self._begin, self._edge = clock, step + self._window.steps
            self._tell("begin")
            return
        self._ended = True
        self._tell("end")
        steps = clock.step - self._begin.step
        own: dict[str, Any] = {
            "own_steps": steps,
            "examples": round(steps * self._examples_per_step),
            "constant_input": self._window.constant_input,
        }
        save(self._window, self._task.name, self._begin, clock, **own)

    def wrap(self, input_fn: InputFn) -> InputFn:
        """Returns the input_fn, or one that hands out its first batch over and over, where that is asked for."""
        if not self._window.constant_input:
            return input_fn
        return lambda *args, **kwargs: input_fn(*args, **kwargs).take(1).cache().repeat()

    def _tell(self, edge: str) -> None:
        if self._task.type == CHIEF:
            self._window.tell_edge(edge)
