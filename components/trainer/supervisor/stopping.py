"""Ends a training at a checkpoint, where a signal or its evaluator says so: all tasks stop at one step.

SIGTERM, SIGINT and SIGHUP are noted while training is supervised, so that it ends in order.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Optional

from tfx_estimator.components.trainer.protocol.events import ask_to_stop, asked_to_stop
from tfx_estimator.components.trainer.supervisor.group import Group
from tfx_estimator.components.trainer.supervisor.outcome import stopped
from tfx_estimator.components.trainer.supervisor.report import Report
from tfx_estimator.components.trainer.supervisor.stored import StoredStop
from tfx_estimator.pipeline.base.ending import shared_status
from tfx_estimator.pipeline.base.ending.signals import NUMBERS, note
from tfx_estimator.pipeline.base.log import get_logger

if TYPE_CHECKING:
    from tfx_estimator.components.trainer.estimator.checkpoints import TrainingCheckpoints

# Time from the chief's request to the step that it names, so that the others hear of it before.
_STORED_NOTICE_SECONDS = 5.0
# How long the others wait for the chief's request.
_STORED_PATIENCE_SECONDS = 10.0
_POLL_SECONDS = 0.1
# All tasks of a cluster must hear of a stop before the step that it names; they look ten times a second.
_STOP_NOTICE_SECONDS = 1.0
_PACE_SECONDS = 0.5
_STOP_SECONDS = 60.0
# Between two looks at what the evaluator found.
_RECORD_SECONDS = 1.0

logger = get_logger("trainer")


class Stopping:
    """Asks the tasks of a training to stop, and sees them do it.

    Args:
        stop_file: By which they are asked: see `ask_to_stop`.
        synchronous: Whether they do each step together.
        checkpoints: In its training folder.
    """

    def __init__(self, stop_file: str, synchronous: bool, report: Report, checkpoints: TrainingCheckpoints) -> None:
        self._stop_file = stop_file
        self._synchronous = synchronous
        self._report = report
        self._checkpoints = checkpoints
        self._stored: Optional[StoredStop] = None
        self._looked_at = -math.inf

    def by_store(self, training_dir: str) -> None:
        """Asks the tasks of other machines, too, which share only the training folder."""
        self._stored = StoredStop(training_dir, self._stop_file)
        if self._report.publishes:
            self._stored.forget()

    def forget(self) -> None:
        """Takes back what they were asked: training is over."""
        if self._stored:
            self._stored.forget()

    def end(self, group: Group, signals: Signals) -> NoReturn:
        """Ends training at a checkpoint, as a signal asked for."""
        number = signals.received or signal.SIGTERM
        if group.trains():
            name = signal.Signals(number).name
            logger.info(f"{name}: writing a checkpoint, then training ends; a second one ends it at once")
            self._ask(group, signals)
            deadline = time.monotonic() + _STOP_SECONDS
            while not group.trainers_ended() and time.monotonic() < deadline and not signals.again:
                group.look()
                time.sleep(_POLL_SECONDS)
            group.look()
        group.kill()
        saved = self._checkpoints.drop_damaged()
        where = f"the last checkpoint is of step {saved}" if saved is not None else "no checkpoint was written yet"
        raise stopped(number, where)

    def end_early(self, group: Group, signals: Signals, is_over: Callable[[], bool]) -> None:
        """Ends the training of a cluster at a checkpoint, as its evaluator found that it is over."""
        due = time.monotonic() - self._looked_at >= _RECORD_SECONDS
        asks = self._report.publishes or self._stored
        if not (due and asks and group.trains()):
            return
        self._looked_at = time.monotonic()
        if asked_to_stop(self._stop_file) is None and is_over():
            logger.info("early stopping: writing a checkpoint, then training is over")
            self._ask(group, signals, over=True)

    def _ask(self, group: Group, signals: Signals, over: bool = False) -> None:
        if self._stored is None:
            ask_to_stop(self._stop_file, self._step(group), over)
        elif self._report.publishes:
            self._stored.ask(self._step(group), over)
        elif not self._stored.hear() and not over:
            # The chief may have got no signal, and then names no step.
            deadline = time.monotonic() + _STORED_PATIENCE_SECONDS
            while not (self._stored.hear() or group.trainers_ended() or signals.again):
                if time.monotonic() > deadline:
                    break
                group.look()
                time.sleep(_PACE_SECONDS)
            ask_to_stop(self._stop_file, group.step)

    def _step(self, group: Group) -> int:
        """The step that all tasks of a synchronous cluster can stop at, by the present pace; for others the present."""
        if not self._synchronous:
            return group.step
        before = group.step
        time.sleep(_PACE_SECONDS)
        group.look()
        pace = max((group.step - before) / _PACE_SECONDS, self._report.steps_per_second())
        notice = _STORED_NOTICE_SECONDS if self._stored else _STOP_NOTICE_SECONDS
        return group.step + max(2, math.ceil(pace * notice))


class Signals:
    """Notes the first signal; a second one ends the process at once.

    Python hands signals to the main thread alone: in another one, these are those of the main thread.
    """

    _main: ClassVar[Optional[Signals]] = None

    def __init__(self) -> None:
        self._received: Optional[int] = None
        self._again = False
        self._of = self
        self._outer: Optional[Signals] = None
        self._before: dict[int, Any] = {}
        self._patience = shared_status.patient()

    @property
    def received(self) -> Optional[int]:
        """The first; None as long as there was none."""
        return self._received if self._of is self else self._of.received

    @property
    def again(self) -> bool:
        """Was there a second one."""
        return self._again if self._of is self else self._of.again

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in NUMBERS}
            self._outer, Signals._main = Signals._main, self
        elif Signals._main is not None:
            self._of = Signals._main
        self._patience.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._patience.__exit__(None, None, None)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if Signals._main is self:
            Signals._main = self._outer

    def _note(self, number: int, frame: Optional[FrameType]) -> None:
        note(number)
        if self._received is not None:
            self._again = True
            if number != signal.SIGINT:
                raise SystemExit(128 + number)
            raise KeyboardInterrupt
        self._received = number
