"""The search: proposes trials, trains them, some at a time, and tells what came of them, always in the same order."""

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
# Of the project, which log in a trial: a filter is of one logger, and not of those below it.
_TRIAL_PARTS = ("trainer", "files")


class Search:
    """One tuning.

    What is tried follows from the seed and from the results, and not from which trial ends first: an oracle that goes
    by results is told of them in the order of the trials, and the next trial waits for the oldest.

    Args:
        run: Trains a trial, or returns what is known of it; it is called in a thread of its own.
        hear: Is told of each trial that begins, with None, and of what came of it.
    """

    def __init__(
        self,
        section: TuneSection,
        proposals: Proposals,
        run: Callable[[Trial], Result],
        hear: Callable[[Trial, Any], None] = lambda trial, result: None,
    ) -> None:
        self._section = section
        self._proposals = proposals
        self._run = run
        self._hear = hear
        self._stop = threading.Event()
        self._running: dict[int, tuple[Trial, concurrent.futures.Future[Result]]] = {}
        self._results: list[Result] = []

    def enough(self) -> bool:
        """Says that no trial is wanted any more."""
        return self._stop.is_set()

    def search(self) -> list[Result]:
        """Tries until there is nothing more to try; raises if too many trials failed, or a signal came."""
        parallel = self._section.parallel_trials
        with Signals() as signals, _told_apart(), concurrent.futures.ThreadPoolExecutor(parallel) as pool:
            try:
                while True:
                    while len(self._unfinished()) < parallel and (trial := self._proposals.next()):
                        self._hear(trial, None)
                        self._running[trial.number] = trial, pool.submit(self._in_thread, trial)
                    if not self._running:
                        break
                    self._wait()
                    if signals.received:
                        self._end(signals.received)
                    self._tell()
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
        """The trials whose place nobody can have yet."""
        if self._section.strategy == RANDOM:
            return [number for number, (_, future) in self._running.items() if not future.done()]
        return list(self._running)

    def _wait(self) -> None:
        """Waits until there may be something to do; a signal is heard meanwhile."""
        futures = [future for _, future in self._running.values()]
        if not futures[0].done():
            open_ones = [future for future in futures if not future.done()]
            concurrent.futures.wait(open_ones, _POLL_SECONDS, concurrent.futures.FIRST_COMPLETED)

    def _tell(self) -> None:
        """Takes what has ended, in the order of the trials; one at a time where the next trial goes by it."""
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
            self._hear(trial, result)
            self._check()
            self._proposals.tell(result)
            if self._section.strategy != RANDOM:
                return

    def _end(self, received: int) -> None:
        """Waits for the trials to stop at their checkpoints, as the supervisors see to, and raises."""
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
            todo="run the same again: it goes on from there",
            exit_code=128 + received,
        )

    def _check(self) -> None:
        """Gives up after too many failures."""
        most = self._section.max_consecutive_failures
        last = self._results[-most:]
        if len(last) == most and all(each.status == FAILED for each in last):
            raise self._failed(last)

    def _failed(self, failed: list[Result]) -> TrainingError:
        how = "all trials" if len(failed) == len(self._results) else f"{len(failed)} trials, one after another,"
        first = failed[0]
        return TrainingError(
            f"{how} failed; of trial {first.number} ({show_values(first.values)}) the reason is:\n{first.reason}",
            expected="values that can be trained with",
            todo="see the reason, and choose other ranges; trials that failed are tried again by the next run",
        )


@contextlib.contextmanager
def _told_apart() -> Iterator[None]:
    """Says in the Trainer's messages of which trial they are; a warning that another trial gave is not given again."""
    warned: set[str] = set()

    def told(record: logging.LogRecord) -> bool:
        if record.threadName and record.threadName.startswith(_THREAD):
            text = record.getMessage()
            if record.levelno >= logging.WARNING:
                if text in warned:
                    return False
                warned.add(text)
            record.msg, record.args = f"{record.threadName}: {text}", ()
        return True

    loggers = [log.get_logger(part) for part in _TRIAL_PARTS]
    for logger in loggers:
        logger.addFilter(told)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(told)
