"""What happens between two executions of a Keras training: reports, checkpoints, the request to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Optional

from tfx_estimator.components.trainer.keras.curves import Curves
from tfx_estimator.components.trainer.keras.measuring import Meter
from tfx_estimator.components.trainer.keras.saver import Saver
from tfx_estimator.components.trainer.protocol.events import Event, ProgressWriter
from tfx_estimator.components.trainer.protocol.stop import asked_to_stop
from tfx_estimator.pipeline.config.trainer import TrainerSection

_EVERY_SECONDS = 0.5


class Watch:
    """Decides how many steps the next execution has, and does what is due after it.

    An execution ends where something is due: a checkpoint, a point of the curves, the last step. All tasks of a cluster
    must have the same executions: TensorFlow knows their messages by the turn of the execution's loop as well, and
    would wait for ever for those of another turn.

    Args:
        section: The declared trainer.
        saver: Of the checkpoints.
        curves: None in a task that writes none.
        progress: Where to report.
        stop_file: Where the supervisor asks to stop.
        at_once: Most steps of an execution.
        meter: Of `tfx-estimator bench`.
        ends: Says, after each checkpoint, whether training is over; None where nothing decides so.
    """

    def __init__(
        self,
        section: TrainerSection,
        saver: Saver,
        curves: Optional[Curves],
        progress: ProgressWriter,
        stop_file: str,
        at_once: int,
        meter: Optional[Meter] = None,
        ends: Optional[Callable[[], bool]] = None,
    ) -> None:
        self.total = section.train_steps or 0
        self._checkpoint_steps = section.checkpoint_steps
        self._report_steps = section.report_steps
        self._saver = saver
        self._curves = curves
        self._progress = progress
        self._stop_file = stop_file
        self._at_once = at_once
        self._meter = meter
        self._ends = ends or (lambda: False)
        self._reported = 0.0
        self.step = 0
        self.stopped = False
        self.over = False

    def begin(self, step: int, over: bool = False) -> None:
        """Notes the step that training starts from.

        Args:
            step: The global step.
            over: Was training over there.
        """
        self.step, self.over = step, over
        self._progress.at(step)
        self._progress.write(Event.STEP, step=step, total=self.total)
        if self._curves is not None:
            self._curves.started(step)
        self._look()

    @property
    def ended(self) -> bool:
        """Is training done, or to stop."""
        return self.stopped or self.over or self.step >= self.total

    def next_steps(self) -> int:
        """Returns the number of steps of the next execution."""
        intervals = (self._at_once, self._checkpoint_steps, self._report_steps)
        return min(*(each - self.step % each for each in intervals), self.total - self.step)

    def done(self, steps: int, values: Mapping[str, float]) -> None:
        """Does what is due after an execution.

        Args:
            steps: That it had.
            values: Of its last step: `loss`, and what else there is to report.
        """
        self.step += steps
        self._progress.at(self.step)
        if self._meter is not None:
            self._meter.done(self.step)
        now = time.monotonic()
        if self.step >= self.total or now - self._reported >= _EVERY_SECONDS:
            self._reported = now
            self._progress.write(Event.STEP, step=self.step, loss=values["loss"])
        if self._curves is not None and self.step % self._report_steps == 0:
            self._curves.write(self.step, values)
        self._look()
        if self.ended or self.step % self._checkpoint_steps == 0:
            self._saver.save(self.step)
            if self._curves is not None:
                self._curves.saved(self.step)
            # The checkpoint of one that is asked to stop is evaluated when training goes on.
            self.over = not self.stopped and self._ends()

    def _look(self) -> None:
        stop_at = asked_to_stop(self._stop_file)
        self.stopped = stop_at is not None and self.step >= stop_at and self.step < self.total
