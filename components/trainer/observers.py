"""What watches a training between its steps, the same on every path; `estimator.hooks` and `keras.watch` call it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Optional

from tfx_estimator.components.trainer.protocol.events import Event, ProgressWriter

# Steps that were done more than the global step says: of parameter servers alone. And those that float16 had skipped.
EXTRA_STEPS, SKIPPED_STEPS = "extra_steps", "skipped_steps"
_EVERY_SECONDS = 0.5


class Observer:
    """Is called with the number of global steps that are done; on the Keras paths between executions of several.

    An Estimator's checkpoint is written before `after_step`, one of the Keras paths after it.
    """

    @property
    def stops(self) -> bool:
        """Is training to end now."""
        return False

    @property
    def wants_values(self) -> bool:
        """Does it need the values of the next step: an Estimator fetches none else."""
        return False

    @property
    def edges(self) -> Sequence[int]:
        """The global steps at which an execution of several is to end."""
        return ()

    def begin(self, step: int) -> None:
        """Training starts, or goes on, in a new session too."""

    def before_step(self, step: int) -> None:
        """The next step begins."""

    def after_step(self, step: int, values: Mapping[str, float]) -> None:
        """A step is done.

        Args:
            values: Of the step, such as `loss`; on the Estimator path those that were wanted, with the `step` as it was
                read beside the update.
        """

    def before_save(self, step: int) -> None:
        """A checkpoint is about to be written."""

    def end(self, step: int, values: Mapping[str, float]) -> None:
        """Training has ended.

        Args:
            values: Those that there are without another step.
        """


class Reporter(Observer):
    """Shows the supervisor each step, and reports it at most twice a second, and at the end.

    Args:
        total: The last step; None where the input, or the user's own code, ends training.
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
        """Shows the step: who is killed while its checkpoint is written has done it."""
        self._progress.at(step)

    def end(self, step: int, values: Mapping[str, float]) -> None:
        """See Observer."""
        if step != self._reported:
            self._report(step, values)

    def _report(self, step: int, values: Mapping[str, float]) -> None:
        self._last = time.monotonic()
        # What was read beside the update may be of the step before: the end tells it again.
        self._reported = -1 if "step" in values else step
        told = {name: int(values[name]) for name in (SKIPPED_STEPS, EXTRA_STEPS) if name in values}
        loss = {"loss": float(values["loss"])} if "loss" in values else {}
        self._progress.write(Event.STEP, step=int(values.get("step", step)), **told, **loss)
