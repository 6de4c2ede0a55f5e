"""What happens between two executions of a Keras training: reports, checkpoints, the request to stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Optional

import tensorflow as tf

from tfx_estimator.components.trainer.keras.saving import Saver
from tfx_estimator.components.trainer.observers import Observer
from tfx_estimator.components.trainer.protocol.events import PeerLostError, stop_step
from tfx_estimator.model_fn.optim.averaging import Averaging
from tfx_estimator.pipeline.base.errors import TrainingError
from tfx_estimator.pipeline.config.trainer import TrainerSection

# Between two looks for the request to stop; no execution is much longer.
_EVERY_SECONDS = 0.5
# Of executions that are to have a fixed number of steps: a longer one would outlive a request to stop. As long as it is
# not known how long a step lasts, they have few.
_MOST_SECONDS = 10.0
_FIRST_STEPS = 5


class Watch:
    """Decides how many steps the next execution has, and does what is due after it.

    An execution ends where something is due: a checkpoint, a point of the curves, the last step. It has as many steps
    as half a second allows, so that a request to stop is heard soon. All tasks of a cluster must have the same
    executions: TensorFlow knows their messages by the turn of the execution's loop as well, and would wait for ever for
    those of another turn. So they agree about twice a second on their pace, and on whether one of them is to stop.

    Args:
        strategy: Under which all of them train.
        stop_file: Where the supervisor asks to stop.
        at_once: Most steps of an execution.
        observers: Called between two executions.
        ends: Says, after each checkpoint, whether training is over.
        averaging: Of the weights of all tasks; executions do it by themselves every `section.sync_every` steps. None
            where they are equal anyway.
        fixed: Have all executions `at_once` steps, but where something is due, or they would last too long.
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
        # Since the tasks agreed last, and how many steps after it they do again; it doubles at most, as the first step
        # is one of tracing.
        self._steps, self._seconds = 0, 0.0
        self._pause = 0.5
        self._agree_at = 0
        # Seconds a step, of an execution before which nothing was built.
        self._pace: Optional[float] = None
        self._diverged = False
        self.step = 0
        self.stopped = False
        self.over = False

    def begin(self, step: int, over: bool = False) -> None:
        """Notes the step that training starts from, the same in all tasks; has an evaluation said that it is over."""
        self.step, self.over = step, over
        for each in self._observers:
            each.begin(step)
        if not self.ended:
            self._agree()
        self._end({})

    @property
    def ended(self) -> bool:
        """Is training done, or to stop."""
        return self.stopped or self.over or self.step >= self.total

    def next_steps(self) -> int:
        """Returns the number of steps of the next execution, which begins now."""
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
        """Steps of an execution where all have as many: `at_once`, or a part of it where that would last long."""
        if self._pace is None:
            return min(self._at_once, _FIRST_STEPS)
        longest = max(int(_MOST_SECONDS / self._pace), 1)
        return max(part for part in range(1, min(self._at_once, longest) + 1) if self._at_once % part == 0)

    def whole_executions(self, steps: int) -> int:
        """Returns how many executions of as many steps follow one another, as all are where parameter servers are.

        1 at least; those up to the next edge of a profile, the next checkpoint that would be in the midst of one, or
        the last step.
        """
        edges = self._edges
        if self._checkpoint_steps % steps:
            edges.append(self.step - self.step % self._checkpoint_steps + self._checkpoint_steps)
        end = min([self.total, *edges])
        executions = max((end - self.step) // steps, 1)
        return executions if self._pace is not None else min(executions, 2)

    def done(self, steps: int, values: Mapping[str, float], paced: bool = True) -> None:
        """Does what is due after an execution.

        Args:
            values: Of its last step: `loss`, and what else there is to report.
            paced: Was nothing but its steps done in it.
        """
        now = time.monotonic()
        if paced:
            self._pace = max((now - self._began) / steps, 1e-9)
        self._steps, self._seconds = self._steps + steps, self._seconds + now - self._began
        self.step += steps
        if math.isnan(values["loss"]):
            # Of a task that trains by itself the others do not know: they would wait for it.
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
            # The checkpoint of one that is asked to stop is evaluated when training goes on.
            self.over = not self.stopped and self._ends()
        self._end(values)
        self._began = time.monotonic()

    def _end(self, values: Mapping[str, float]) -> None:
        if self.ended:
            for each in self._observers:
                each.end(self.step, values)

    def _agree(self) -> None:
        stop_at = stop_step(self._stop_file)
        asked = stop_at is not None and self.step >= stop_at
        own = self._seconds / self._steps if self._steps else _EVERY_SECONDS
        numbers = own, float(asked), float(self.step), float(self._diverged)
        seconds, stops, step, diverged = self._mean(*numbers)
        if step != self.step:
            raise PeerLostError(
                f"this task goes on from step {self.step}, and others from another one: do all see one training folder?"
            )
        if diverged:
            raise not_a_number(f"the loss of a task, up to step {self.step},")
        self.stopped = stops > 0
        self._pause = 1 if self._fixed else max(min(_EVERY_SECONDS / max(seconds, 1e-9), 2 * self._pause), 1)
        self._agree_at = self.step + int(self._pause)
        self._steps, self._seconds = 0, 0.0


def not_a_number(what: str) -> TrainingError:
    """Returns the error of a training that has diverged: something is not a number."""
    return TrainingError(
        f"{what} is not a number: training has diverged, or was fed something that is no number either",
        expected="a finite loss",
        todo="lower trainer.optimizer.learning_rate or clip the gradients, and see that what the preprocessing_fn "
        "returns is finite; a changed declaration starts at step 0",
    )


def mean_over_tasks(strategy: tf.distribute.Strategy) -> Callable[..., Sequence[float]]:
    """Makes what averages numbers over all tasks of a synchronous cluster, which so decide alike.

    Returns:
        A function that every task must call between the same two executions; one that trains alone agrees with itself,
        at no cost.
    """
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return lambda *values: values

    @tf.function
    def over_replicas(values: tf.Tensor) -> tf.Tensor:
        def mean() -> tf.Tensor:
            # A copy: a reduction goes by the replica's device, and an argument has none.
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, tf.identity(values))

        return strategy.run(mean)

    def mean(*values: float) -> Sequence[float]:
        means = over_replicas(tf.constant(values, tf.float64))
        return strategy.experimental_local_results(means)[0].numpy().tolist()

    return mean
