"""Ends a training at a checkpoint, where a signal or its evaluator says so: all tasks stop at one step."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import time
from collections.abc import Callable
from typing import Any, NoReturn, Optional

from tfx.dsl.io import fileio

from tfx_estimator.components.files import write_whole
from tfx_estimator.components.trainer.protocol.stop import ask_to_stop, asked_to_stop
from tfx_estimator.components.trainer.protocol.traits import Checkpoints
from tfx_estimator.components.trainer.supervisor.group import Group
from tfx_estimator.components.trainer.supervisor.outcome import stopped
from tfx_estimator.components.trainer.supervisor.report import Report
from tfx_estimator.components.trainer.supervisor.signals import Signals
from tfx_estimator.pipeline.base.log import get_logger

# Time from the chief's request to the step that it names, so that the others hear of it before.
_STORED_NOTICE_SECONDS = 5.0
# How long the others wait for the chief's request.
_STORED_PATIENCE_SECONDS = 10.0
_STORED_FILE = "stop.json"
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
        stop_file: By which they are asked: see `protocol.stop`.
        synchronous: Whether they do each step together.
        checkpoints: In its training folder.
    """

    def __init__(self, stop_file: str, synchronous: bool, report: Report, checkpoints: Checkpoints) -> None:
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


class StoredStop:
    """The chief's word, beside the checkpoints."""

    def __init__(self, training_dir: str, stop_file: str) -> None:
        self._path = os.path.join(training_dir, _STORED_FILE)
        self._stop_file = stop_file
        # A request from before this moment belongs to an earlier training.
        self._begun = time.time()

    def ask(self, step: int, over: bool) -> None:
        """Asks all tasks to stop, as `ask_to_stop` does."""
        with contextlib.suppress(Exception):  # the store does not answer: this task stops, and the others lose it
            write_whole(self._path, json.dumps({"step": step, "over": over, "at": time.time()}))
        ask_to_stop(self._stop_file, step, over)

    def hear(self) -> bool:
        """Asks this task to stop if the chief has said so; returns whether it has."""
        said: dict[str, Any] = {}
        with contextlib.suppress(Exception), fileio.open(self._path) as file:  # no request, or no answer
            said = json.loads(file.read())
        if said.get("at", 0.0) < self._begun:
            return False
        ask_to_stop(self._stop_file, said["step"], said["over"])
        return True

    def forget(self) -> None:
        """Removes the word: training begins, or is over."""
        with contextlib.suppress(Exception):
            fileio.remove(self._path)
