"""Stops all tasks of a training at a checkpoint of the same step, after a signal or for early stopping.

SIGTERM, SIGINT and SIGHUP are caught while training is supervised.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Optional

from tfx_estimator.components.trainer.protocol.events import request_stop, stop_step
from tfx_estimator.components.trainer.supervisor.group import Group
from tfx_estimator.components.trainer.supervisor.outcome import stopped
from tfx_estimator.components.trainer.supervisor.report import Report
from tfx_estimator.components.trainer.supervisor.stored import StoredStop
from tfx_estimator.pipeline.base.ending import shared_status
from tfx_estimator.pipeline.base.ending.signals import NUMBERS, note
from tfx_estimator.pipeline.base.log import get_logger

if TYPE_CHECKING:
    from tfx_estimator.components.trainer.estimator.checkpoints import TrainingCheckpoints

# Time from the chief's request to its stop step, in which the other tasks must read it.
_STORED_NOTICE_SECONDS = 5.0
# How long the other tasks wait for the chief's request.
_STORED_PATIENCE_SECONDS = 10.0
_POLL_SECONDS = 0.1
# All tasks of a cluster must read a stop request before its stop step; they check ten times a second.
_STOP_NOTICE_SECONDS = 1.0
_PACE_SECONDS = 0.5
_STOP_SECONDS = 60.0
# Between two checks of the evaluations for early stopping.
_RECORD_SECONDS = 1.0

logger = get_logger("trainer")


class Stopping:
    """Requests that the tasks of a training stop, and waits for them.

    Args:
        stop_file: See `request_stop`.
        synchronous: True if the tasks do each step together.
    """

    def __init__(self, stop_file: str, synchronous: bool, report: Report, checkpoints: TrainingCheckpoints) -> None:
        self._stop_file = stop_file
        self._synchronous = synchronous
        self._report = report
        self._checkpoints = checkpoints
        self._stored: Optional[StoredStop] = None
        self._checked_at = -math.inf

    def use_store(self, training_dir: str) -> None:
        """Exchanges requests with the tasks of other machines through the shared training folder."""
        self._stored = StoredStop(training_dir, self._stop_file)
        if self._report.publishes:
            self._stored.remove()

    def remove(self) -> None:
        """Removes the stored request after training."""
        if self._stored:
            self._stored.remove()

    def end(self, group: Group, signals: Signals) -> NoReturn:
        """Ends training at a checkpoint after a signal."""
        number = signals.received or signal.SIGTERM
        if group.trains():
            name = signal.Signals(number).name
            logger.info(f"{name}: writing a checkpoint, then training ends; a second one ends it at once")
            self._request(group, signals)
            deadline = time.monotonic() + _STOP_SECONDS
            while not group.trainers_ended() and time.monotonic() < deadline and not signals.again:
                group.poll()
                time.sleep(_POLL_SECONDS)
            group.poll()
        group.kill()
        saved = self._checkpoints.drop_damaged()
        where = f"the last checkpoint is of step {saved}" if saved is not None else "no checkpoint was written yet"
        raise stopped(number, where)

    def end_early(self, group: Group, signals: Signals, is_over: Callable[[], bool]) -> None:
        """Ends a cluster's training at a checkpoint once early stopping applies."""
        due = time.monotonic() - self._checked_at >= _RECORD_SECONDS
        may_request = self._report.publishes or self._stored
        if not (due and may_request and group.trains()):
            return
        self._checked_at = time.monotonic()
        if stop_step(self._stop_file) is None and is_over():
            logger.info("early stopping: writing a checkpoint, then training is over")
            self._request(group, signals, over=True)

    def _request(self, group: Group, signals: Signals, over: bool = False) -> None:
        if self._stored is None:
            request_stop(self._stop_file, self._step(group), over)
        elif self._report.publishes:
            self._stored.request(self._step(group), over)
        elif not self._stored.poll() and not over:
            # A chief without a signal requests no stop.
            deadline = time.monotonic() + _STORED_PATIENCE_SECONDS
            while not (self._stored.poll() or group.trainers_ended() or signals.again):
                if time.monotonic() > deadline:
                    break
                group.poll()
                time.sleep(_PACE_SECONDS)
            request_stop(self._stop_file, group.step)

    def _step(self, group: Group) -> int:
        """Returns a step that all tasks of a synchronous cluster can stop at, by their pace; else the current one."""
        if not self._synchronous:
            return group.step
        before = group.step
        time.sleep(_PACE_SECONDS)
        group.poll()
        pace = max((group.step - before) / _PACE_SECONDS, self._report.steps_per_second())
        notice = _STORED_NOTICE_SECONDS if self._stored else _STOP_NOTICE_SECONDS
        return group.step + max(2, math.ceil(pace * notice))


class Signals:
    """Records the first signal; a second one ends the process at once.

    Python handles signals in the main thread only; in any other thread this reads the main thread's signals.
    """

    _main: ClassVar[Optional[Signals]] = None

    def __init__(self) -> None:
        self._received: Optional[int] = None
        self._again = False
        self._source = self
        self._outer: Optional[Signals] = None
        self._before: dict[int, Any] = {}
        self._patience = shared_status.patient()

    @property
    def received(self) -> Optional[int]:
        """The first signal, if any."""
        return self._received if self._source is self else self._source.received

    @property
    def again(self) -> bool:
        """True after a second signal."""
        return self._again if self._source is self else self._source.again

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in NUMBERS}
            self._outer, Signals._main = Signals._main, self
        elif Signals._main is not None:
            self._source = Signals._main
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
