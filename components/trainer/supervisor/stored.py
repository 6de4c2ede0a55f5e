"""Messages between tasks of an external cluster, exchanged through the shared training folder, perhaps in a store.

The chief writes the step to stop at, and in a store its job, which a task notes that it trains. The evaluator writes a
progress mark for the chief, which waits for its model: an evaluation may be long, and writes nothing else before its
end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, Optional

from tfx.dsl.io import fileio

from tfx_estimator.components.files import read_json, write_whole
from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.protocol.events import request_stop
from tfx_estimator.pipeline.base.files import parsed

_STOP, _BEAT, _CLUSTER, _JOB = "stop.json", "evaluator.json", "cluster", "job.json"
# The mark's interval: fixed, or shorter for a short timeout.
_EVERY_SECONDS, _PER_TIMEOUT = 30.0, 10


class EvaluatorBeat:
    """The evaluator's progress mark: a file next to the checkpoints, rewritten while the evaluator makes progress.

    Args:
        timeout: Seconds without progress after which the chief gives up.
        done: Returns True once the evaluator has exported.
    """

    def __init__(self, training_dir: str, timeout: float, done: Callable[[], bool]) -> None:
        self._folder, self._done = training_dir, done
        self._every = min(_EVERY_SECONDS, timeout / _PER_TIMEOUT)
        self._written, self._at = 0.0, -self._every

    def write(self, last_progress: float) -> None:
        """Writes the mark if there was progress since the last one."""
        now = time.monotonic()
        if last_progress <= self._written or now - self._at < self._every:
            return
        self._written, self._at = last_progress, now
        with contextlib.suppress(Exception):  # an unavailable store
            # The chief may have published the folder; writing to a store would create it again.
            if fileio.exists(self._folder) and not self._done():
                write_whole(os.path.join(self._folder, _BEAT), f"{time.time()}")


def read(training_dir: str) -> Any:
    """Returns the evaluator's last progress mark, if any."""
    return read_json(os.path.join(training_dir, _BEAT), kind=float)


def offer(job: Job) -> None:
    """Offers the chief's job to the other tasks."""
    record = {"at": time.time(), "job": dataclasses.asdict(job)}
    write_whole(os.path.join(job.training_dir, _CLUSTER, _JOB), json.dumps(record))


def offers(root: str) -> Iterator[tuple[str, float]]:
    """Yields the offers in the training folders of a folder, with the chief's time of each."""
    for path in fileio.glob(os.path.join(root, "*", _CLUSTER, _JOB)):
        if record := read_json(path):
            yield path, record["at"]


def load(offer: str) -> tuple[float, Optional[Job]]:
    """Returns the chief's time of an offer, and its job; None if it is gone."""
    record = read_json(offer)
    return (record["at"], Job.of(record["job"])) if record else (0.0, None)


def enter(offer: str, task: str, at: float) -> bool:
    """Notes that a task trains the job that was offered then; returns True."""
    write_whole(os.path.join(os.path.dirname(offer), f"{task}.json"), json.dumps({"at": at}))
    return True


def entered(offer: str, task: str) -> Optional[float]:
    """Returns the time of the last offer that a task has trained, if any."""
    record = read_json(os.path.join(os.path.dirname(offer), f"{task}.json"))
    return record and record["at"]


def remove(training_dir: str) -> None:
    """Removes the evaluator's progress mark, the offer, and what the tasks have noted."""
    with contextlib.suppress(Exception):  # an unavailable store
        if fileio.exists(path := os.path.join(training_dir, _BEAT)):
            fileio.remove(path)
        if fileio.exists(path := os.path.join(training_dir, _CLUSTER)):
            fileio.rmtree(path)


class StoredStop:
    """The chief's stop request, next to the checkpoints."""

    def __init__(self, training_dir: str, stop_file: str) -> None:
        self._path = os.path.join(training_dir, _STOP)
        self._stop_file = stop_file
        # An earlier request belongs to an earlier training.
        self._begun = time.time()

    def request(self, step: int, over: bool) -> None:
        """Requests that all tasks stop, as `request_stop` does."""
        with contextlib.suppress(Exception):  # an unavailable store: this task stops, and the others fail with it
            write_whole(self._path, json.dumps({"step": step, "over": over, "at": time.time()}))
        request_stop(self._stop_file, step, over)

    def poll(self) -> bool:
        """Passes the chief's request, if any, to this machine's task; returns whether there is one."""
        request: dict[str, Any] = {}
        with contextlib.suppress(Exception), fileio.open(self._path) as file:  # no request, or an unavailable store
            request = parsed(file.read()) or {}
        if request.get("at", 0.0) < self._begun:
            return False
        request_stop(self._stop_file, request["step"], request["over"])
        return True

    def remove(self) -> None:
        """Removes the request, before and after training."""
        with contextlib.suppress(Exception):
            fileio.remove(self._path)
