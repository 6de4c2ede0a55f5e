"""The search: proposes trials, trains some at a time, and reports their results in a deterministic order."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tfx_estimator.components.trainer.supervisor.stopping import Signals
from tfx_estimator.components.tuner.trials import FAILED, Proposals, Result, Trial
from tfx_estimator.pipeline.base import log
from tfx_estimator.pipeline.base.errors import StoppedError, TrainingError
from tfx_estimator.pipeline.config.put_values import show_values
from tfx_estimator.pipeline.config.tune import RANDOM, TuneSection

_POLL_SECONDS = 0.2
_THREAD = "trial "
# Loggers used in a trial: a filter does not apply to child loggers.
_TRIAL_LOGGERS = ("trainer", "files")


class Search:
    """One tuning.

    The proposals depend on the seed and the results, not on which trial ends first: an oracle that uses results gets
    them in the order of the trials, and the next trial waits for the oldest.

    Args:
        run: Trains a trial, or returns its stored result; called in a thread of its own.
        on_trial: Called for each trial when it starts, with None, and with its result.
    """

    def __init__(
        self,
        section: TuneSection,
        proposals: Proposals,
        run: Callable[[Trial], Result],
        on_trial: Callable[[Trial, Any], None] = lambda trial, result: None,
    ) -> None:
        self._section = section
        self._proposals = proposals
        self._run = run
        self._on_trial = on_trial
        self._stop = threading.Event()
        self._running: dict[int, tuple[Trial, concurrent.futures.Future[Result]]] = {}
        self._results: list[Result] = []

    def has_ended(self) -> bool:
        """Returns True if running trials are to stop."""
        return self._stop.is_set()

    def search(self) -> list[Result]:
        """Runs all trials; raises an error if too many fail, or on a signal."""
        parallel = self._section.parallel_trials
        with Signals() as signals, _prefixed_messages(), concurrent.futures.ThreadPoolExecutor(parallel) as pool:
            try:
                while True:
                    while len(self._unfinished()) < parallel and (trial := self._proposals.next()):
                        self._on_trial(trial, None)
                        self._running[trial.number] = trial, pool.submit(self._in_thread, trial)
                    if not self._running:
                        break
                    self._wait()
                    if signals.received:
                        self._end(signals.received)
                    self._collect()
            finally:
                self._stop.set()
        if not any(each.status != FAILED for each in self._results):
            raise self._failed(self._results)
        return self._results

    def _in_thread(self, trial: Trial) -> Result:
        thread = threading.current_thread()
        before, thread.name = thread.name, f"{_THREAD}{trial.number}"
        try:
            return self._run(trial)
        finally:
            thread.name = before

    def _unfinished(self) -> list[int]:
        """Returns the trials that still count as running."""
        if self._section.strategy == RANDOM:
            return [number for number, (_, future) in self._running.items() if not future.done()]
        return list(self._running)

    def _wait(self) -> None:
        """Waits for a trial to end, but not long, so that signals are handled."""
        futures = [future for _, future in self._running.values()]
        if not futures[0].done():
            pending = [future for future in futures if not future.done()]
            concurrent.futures.wait(pending, _POLL_SECONDS, concurrent.futures.FIRST_COMPLETED)

    def _collect(self) -> None:
        """Collects results in the order of the trials; one at a time if the next trial depends on them."""
        for _, future in self._running.values():
            if future.done() and (error := future.exception()):
                self._stop.set()
                raise error
        while self._running:
            number = next(iter(self._running))
            trial, future = self._running[number]
            if not future.done():
                return
            del self._running[number]
            result = future.result()
            self._results.append(result)
            self._on_trial(trial, result)
            self._check()
            self._proposals.record(result)
            if self._section.strategy != RANDOM:
                return

    def _end(self, received: int) -> None:
        """Waits for the supervisors to stop the trials at their checkpoints, and raises StoppedError."""
        futures = [future for _, future in self._running.values()]
        concurrent.futures.wait(futures)
        stopped = [error for future in futures if isinstance(error := future.exception(), StoppedError)]
        if stopped:
            error = stopped[0]
            numbers = [number for number, (_, future) in self._running.items() if future.exception()]
            error.what = f"in trial {', '.join(map(str, numbers))}: {error.what}"
            raise error
        raise StoppedError(
            f"the tuning was ended by {signal.Signals(received).name} between two trials",
            todo="run the same again: it resumes from there",
            exit_code=128 + received,
        )

    def _check(self) -> None:
        """Raises TrainingError after too many consecutive failures."""
        most = self._section.max_consecutive_failures
        last = self._results[-most:]
        if len(last) == most and all(each.status == FAILED for each in last):
            raise self._failed(last)

    def _failed(self, failed: list[Result]) -> TrainingError:
        how = "all trials" if len(failed) == len(self._results) else f"{len(failed)} trials, one after another,"
        first = failed[0]
        return TrainingError(
            f"{how} failed; the reason of trial {first.number} ({show_values(first.values)}):\n{first.reason}",
            expected="values that can be trained with",
            todo="see the reason, and choose other ranges; the next run repeats failed trials",
        )


@contextlib.contextmanager
def _prefixed_messages() -> Iterator[None]:
    """Prefixes the Trainer's messages with the trial; omits a warning that another trial has given."""
    warned: set[str] = set()

    def prefix(record: logging.LogRecord) -> bool:
        if record.threadName and record.threadName.startswith(_THREAD):
            text = record.getMessage()
            if record.levelno >= logging.WARNING:
                if text in warned:
                    return False
                warned.add(text)
            record.msg, record.args = f"{record.threadName}: {text}", ()
        return True

    loggers = [log.get_logger(part) for part in _TRIAL_LOGGERS]
    for logger in loggers:
        logger.addFilter(prefix)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(prefix)
