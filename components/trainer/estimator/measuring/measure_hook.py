"""Measures a task of a training between two steps, for `tfx-estimator bench`; does nothing unless it is asked to.

Asked through the environment, which the tasks inherit from the supervisor. A task reads its own clocks between two of
its steps; a parameter server, which has no steps, between the chief's. The warm-up begins once every task has done a
step: parameter servers let each worker begin when it comes, and the steps until then are the first ones' alone.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.components.trainer.estimator.distribute import rebuild
from tfx_estimator.components.trainer.estimator.measuring.batch_counter import BatchCounter
from tfx_estimator.components.trainer.measuring.clock import Clock, measure_server, save
from tfx_estimator.components.trainer.protocol.measurement import Window
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, PS, TaskSpec

# Far past the end of any measurement.
_NEVER = 10**9


def measured(spec: dict[str, Any], task_spec: TaskSpec) -> dict[str, Any]:
    """Adds the measurement to what a task trains, where the environment asks for one.

    Returns:
        The spec; where this task trains and is measured, with another `train_spec`, and an `estimator` that writes no
        checkpoint while it is measured, whatever its RunConfig says.
    """
    window = Window.of_environment()
    if window is not None and task_spec.type == PS:
        threading.Thread(target=measure_server, args=(window, task_spec.name), name="measure", daemon=True).start()
    if window is None or not task_spec.trains:
        return spec
    train_spec, constant, batches = spec["train_spec"], _ConstantInput(window.constant_input), BatchCounter()
    hooks = (*train_spec.hooks, MeasureHook(window, task_spec, constant, batches))
    config = spec["estimator"].config
    estimator = rebuild(
        spec["estimator"],
        train_distribute=config.train_distribute,
        eval_distribute=config.eval_distribute,
        save_checkpoints_steps=_NEVER,
    )
    estimator._model_fn = batches.wrap(estimator._model_fn)
    train_spec = train_spec._replace(hooks=hooks, input_fn=constant.wrap(train_spec.input_fn))
    return {**spec, "estimator": estimator, "train_spec": train_spec}


class MeasureHook(tf.compat.v1.train.SessionRunHook):
    """Reads the clocks at the two ends of the window.

    Args:
        task_spec: Which task this is.
        constant: Knows whether the batch is a constant one.
        batches: Knows how many examples the model is fed.
    """

    def __init__(self, window: Window, task_spec: TaskSpec, constant: _ConstantInput, batches: BatchCounter) -> None:
        self._window = window
        self._task = task_spec
        self._constant = constant
        self._batches = batches
        self._began = self._ended = False
        self._begin: Optional[Clock] = None
        self._edge: Optional[int] = None
        self._own_steps = 0
        self._examples = 0

    def begin(self) -> None:
        """Finds the global step and the batches."""
        self._tensor = tf.compat.v1.train.get_or_create_global_step()
        self._batches.find()

    def before_run(self, run_context: Any) -> Optional[tf.compat.v1.train.SessionRunArgs]:
        """Asks for the step, which the Estimator itself asks for anyway, and for sizes that only the step knows."""
        if self._ended:
            return None
        # All sizes once, before the warm-up: each other set of tensors is made ready when it is first asked for.
        sizes = self._batches.changing if self._began else self._batches.all
        return tf.compat.v1.train.SessionRunArgs((self._tensor, sizes))

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Measures where the step is the first or the last of the window."""
        if self._ended:
            return
        before, sizes = run_values.results
        if not self._began:
            self._began = True
            self._batches.check(sizes)
            self._window.tell_started(self._task.name)
            sizes = sizes[: len(self._batches.changing)]
        if self._edge is None:
            if self._window.have_started():
                self._edge = int(run_context.session.run(self._tensor)) + self._window.warmup
            return
        self._own_steps += 1
        self._examples += self._batches.size(sizes)
        # The step was read beside the update, so it may be the one before.
        if before + 1 < self._edge:
            return
        step = int(run_context.session.run(self._tensor))
        if step < self._edge:
            return
        clock = Clock.now(step, self._window.cores)
        if self._begin is None:
            self._begin, self._edge = clock, step + self._window.steps
            self._own_steps = self._examples = 0
            self._tell("begin")
        else:
            self._ended = True
            self._tell("end")
            examples = self._examples if self._batches.known else None
            own = {"own_steps": self._own_steps, "examples": examples, "constant_input": self._constant.used}
            save(self._window, self._task.name, self._begin, clock, **own)

    def _tell(self, edge: str) -> None:
        if self._task.type == CHIEF:
            self._window.tell_edge(edge)


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
