"""The work between two executions of a Keras training: reports, checkpoints, requests to stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Optional

import tensorflow as tf

from tfx_estimator.components.trainer.keras.saving import Saver
from tfx_estimator.components.trainer.observers import Observer, not_a_number
from tfx_estimator.components.trainer.protocol.events import PeerLostError, stop_step
from tfx_estimator.model_fn.optim.averaging import Averaging
from tfx_estimator.pipeline.config.trainer import TrainerSection

# Between two checks for the request to stop; no execution is much longer.
_CHECK_SECONDS = 0.5
# Limit of an execution with a fixed number of steps: a longer one would outlive a request to stop.
_MOST_SECONDS = 10.0
# Limit of its steps, until the duration of a step is known.
_FIRST_STEPS = 5


class Watch:
    """Decides the number of steps of each execution, and does the work that is due after it.

    An execution ends where something is due: a checkpoint, a point of the curves, the last step. It has as many steps
    as half a second allows, so that a request to stop is seen soon. All tasks of a cluster must run the same
    executions: TensorFlow matches their messages by the iteration of the execution's loop too, and would wait forever
    for those of another iteration. So they agree about twice a second on their pace, and on whether one is to stop.

    Args:
        strategy: The strategy of all the tasks.
        stop_file: The supervisor's request to stop.
        at_once: Most steps of an execution.
        observers: Called between two executions.
        ends: Returns, after each checkpoint, True if training has ended.
        averaging: Averages the weights of all tasks; executions do so every `section.sync_every` steps. None if they
            are equal anyway.
        fixed: True if executions have `at_once` steps, unless something is due, or they would last too long.
    """

    def __init__(
        self,
        section: TrainerSection,
        saver: Saver,
        strategy: tf.distribute.Strategy,
        stop_file: str,
        at_once: int,
        observers: Sequence[Observer],
        ends: Callable[[], bool] = lambda: False,
        averaging: Optional[Averaging] = None,
        fixed: bool = False,
    ) -> None:
        self.total = section.train_steps or 0
        self._checkpoint_steps = section.checkpoint_steps
        self._report_steps = section.report_steps
        self._at_once = at_once
        self._saver = saver
        self._stop_file = stop_file
        self._mean = mean_over_tasks(strategy)
        self._observers = observers
        self._ends = ends
        self._averaging = averaging
        self._sync_steps = section.sync_every.steps if section.sync_every else self.total
        self._fixed = fixed
        self._began = 0.0
        # Steps and seconds since the tasks last agreed.
        self._steps, self._seconds = 0, 0.0
        # Steps until they agree again; it at most doubles each time, as the first step traces the function.
        self._pause = 0.5
        self._agree_at = 0
        # Seconds per step, of an execution that traced nothing.
        self._pace: Optional[float] = None
        self._diverged = False
        self.step = 0
        self.stopped = False
        self.ended_early = False

    def begin(self, step: int, ended_early: bool = False) -> None:
        """Starts at a step, the same in all tasks; `ended_early` if an evaluation has ended the training."""
        self.step, self.ended_early = step, ended_early
        for each in self._observers:
            each.begin(step)
        if not self.ended:
            self._agree()
        self._end({})

    @property
    def ended(self) -> bool:
        """True if training has ended or is to stop."""
        return self.stopped or self.ended_early or self.step >= self.total

    def next_steps(self) -> int:
        """Begins an execution; returns its number of steps."""
        for each in self._observers:
            each.before_step(self.step)
        self._began = time.monotonic()
        due = [each - self.step % each for each in (self._checkpoint_steps, self._report_steps)]
        due += [edge - self.step for edge in self._edges]
        most = self.stretch - self.step % self.stretch if self._fixed else min(self._at_once, int(self._pause))
        return min(most, *due, self.total - self.step)

    @property
    def _edges(self) -> list[int]:
        return [edge for each in self._observers for edge in each.edges if edge > self.step]

    @property
    def stretch(self) -> int:
        """The fixed number of steps of an execution: `at_once`, or a divisor of it if that would last too long."""
        if self._pace is None:
            return min(self._at_once, _FIRST_STEPS)
        longest = max(int(_MOST_SECONDS / self._pace), 1)
        return max(part for part in range(1, min(self._at_once, longest) + 1) if self._at_once % part == 0)

    def whole_executions(self, steps: int) -> int:
        """Returns how many executions of so many steps to run in a row, with parameter servers.

        At least 1; up to the next edge of a profile, the next checkpoint inside an execution, or the last step.
        """
        edges = self._edges
        if self._checkpoint_steps % steps:
            edges.append(self.step - self.step % self._checkpoint_steps + self._checkpoint_steps)
        end = min([self.total, *edges])
        executions = max((end - self.step) // steps, 1)
        return executions if self._pace is not None else min(executions, 2)

    def done(self, steps: int, values: Mapping[str, float], paced: bool = True) -> None:
        """Does the work that is due after an execution.

        Args:
            values: Its last step's `loss` and other values to report.
            paced: True if the execution did nothing but its steps, so that its duration counts.
        """
        now = time.monotonic()
        if paced:
            self._pace = max((now - self._began) / steps, 1e-9)
        self._steps, self._seconds = self._steps + steps, self._seconds + now - self._began
        self.step += steps
        if math.isnan(values["loss"]):
            # With averaging the other tasks do not see this loss, and would wait: they learn of it in `_agree`.
            if self._averaging is None:
                raise not_a_number(f"the loss of step {self.step}")
            self._diverged = True
        for each in self._observers:
            each.after_step(self.step, values)
        saves = self.step >= self.total or self.step % self._checkpoint_steps == 0
        if self._agree_at <= self.step < self.total or (saves and self._averaging is not None):
            self._agree()
        if self.ended or saves:
            if self._averaging is not None and self.step % self._sync_steps:
                self._averaging.before_checkpoint()
            for each in self._observers:
                each.before_save(self.step)
            self._saver.save(self.step)
            # After a request to stop, the checkpoint is evaluated when training resumes.
            self.ended_early = not self.stopped and self._ends()
        self._end(values)
        self._began = time.monotonic()

    def _end(self, values: Mapping[str, float]) -> None:
        if self.ended:
            for each in self._observers:
                each.end(self.step, values)

    def _agree(self) -> None:
        stop_at = stop_step(self._stop_file)
        asked = stop_at is not None and self.step >= stop_at
        own = self._seconds / self._steps if self._steps else _CHECK_SECONDS
        numbers = own, float(asked), float(self.step), float(self._diverged)
        seconds, stops, step, diverged = self._mean(*numbers)
        if step != self.step:
            raise PeerLostError(
                f"this task starts at step {self.step}, and others at another step: do all share one training folder?"
            )
        if diverged:
            raise not_a_number(f"the loss of a task, up to step {self.step},")
        self.stopped = stops > 0
        self._pause = 1 if self._fixed else max(min(_CHECK_SECONDS / max(seconds, 1e-9), 2 * self._pause), 1)
        self._agree_at = self.step + int(self._pause)
        self._steps, self._seconds = 0, 0.0


def mean_over_tasks(strategy: tf.distribute.Strategy) -> Callable[..., Sequence[float]]:
    """Makes a function that averages numbers over all tasks of a synchronous cluster, so that they decide alike.

    Every task must call it between the same two executions. For one task it returns its arguments.
    """
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return lambda *values: values

    @tf.function
    def over_replicas(values: tf.Tensor) -> tf.Tensor:
        def mean() -> tf.Tensor:
            # tf.identity: a reduction uses its tensor's device, and an argument has none.
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, tf.identity(values))

        return strategy.run(mean)

    def mean(*values: float) -> Sequence[float]:
        means = over_replicas(tf.constant(values, tf.float64))
        return strategy.experimental_local_results(means)[0].numpy().tolist()

    return mean
