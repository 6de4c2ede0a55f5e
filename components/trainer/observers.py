"""Observers of a training's steps, the same for every path; `estimator.hooks` and `keras.watch` call them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Optional

from tfx_estimator.components.trainer.protocol.events import Event, ProgressWriter
from tfx_estimator.pipeline.base.errors import TrainingError

# Steps beyond the global step, with parameter servers only; steps that float16 skipped.
EXTRA_STEPS, SKIPPED_STEPS = "extra_steps", "skipped_steps"
_EVERY_SECONDS = 0.5


def not_a_number(what: str) -> TrainingError:
    """Returns the error of a training that has diverged, on any path."""
    return TrainingError(
        f"{what} is not a number: training has diverged, or its input holds NaN or infinity",
        expected="a finite loss",
        todo="lower trainer.optimizer.learning_rate, or your own optimizer's, or clip the gradients, and check that "
        "the preprocessing_fn returns finite values; a changed declaration starts at step 0",
    )


class Observer:
    """Called with the global steps done; on the Keras paths, between executions of several steps.

    A checkpoint is written before `after_step` on the Estimator path, and after it on the Keras paths.
    """

    @property
    def stops(self) -> bool:
        """True if training is to end now."""
        return False

    @property
    def wants_values(self) -> bool:
        """True if it needs the next step's values; otherwise an Estimator does not fetch them."""
        return False

    @property
    def edges(self) -> Sequence[int]:
        """The global steps at which an execution of several steps must end."""
        return ()

    def begin(self, step: int) -> None:
        """Called when training starts or resumes, also in a new session."""

    def before_step(self, step: int) -> None:
        """Called before each step."""

    def after_step(self, step: int, values: Mapping[str, float]) -> None:
        """Called after each step.

        Args:
            values: The step's values, such as `loss`; on the Estimator path only if wanted, with the `step` that was
                fetched with the update.
        """

    def before_save(self, step: int) -> None:
        """Called before a checkpoint is written."""

    def end(self, step: int, values: Mapping[str, float]) -> None:
        """Called after training.

        Args:
            values: Those available without another step.
        """


class Reporter(Observer):
    """Sets the current step for the supervisor, and reports a STEP event at most twice a second, and at the end.

    Args:
        total: The last step; None if the input, or the user's code, ends training.
    """

    def __init__(self, progress: ProgressWriter, total: Optional[int]) -> None:
        self._progress = progress
        self._total = total
        self._last = 0.0
        self._reported = -1

    @property
    def wants_values(self) -> bool:
        """See Observer."""
        return time.monotonic() - self._last >= _EVERY_SECONDS

    def begin(self, step: int) -> None:
        """See Observer."""
        self._reported = step
        self._progress.at(step)
        self._progress.write(Event.STEP, step=step, total=self._total)

    def after_step(self, step: int, values: Mapping[str, float]) -> None:
        """See Observer."""
        self._progress.at(step)
        if values and (self.wants_values or step == self._total):
            self._report(step, values)

    def before_save(self, step: int) -> None:
        """Sets the step: a task that is killed while its checkpoint is written has done it.

        An Estimator evaluates its last checkpoint before `end`: a report after that would add the evaluation's cost.
        """
        self._progress.at(step)
        # Asynchronous workers may do more.
        if self._total is not None and step >= self._total:
            self.end(step, {})

    def end(self, step: int, values: Mapping[str, float]) -> None:
        """See Observer."""
        if step != self._reported:
            self._report(step, values)

    def _report(self, step: int, values: Mapping[str, float]) -> None:
        self._last = time.monotonic()
        # A `step` fetched with the update may be the step before: `end` then reports again.
        self._reported = -1 if "step" in values else step
        counts = {name: int(values[name]) for name in (SKIPPED_STEPS, EXTRA_STEPS) if name in values}
        loss = {"loss": float(values["loss"])} if "loss" in values else {}
        self._progress.write(Event.STEP, step=int(values.get("step", step)), **counts, **loss)
