"""A sign of life of the evaluator in somebody else's cluster: its chief waits for the model.

The two share only the training folder, perhaps in an object store. What an evaluator writes there anyway comes
at the end of an evaluation, which may be long.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

from tfx.dsl.io import fileio

from tfx_estimator.components.files import read_json, write_whole
from tfx_estimator.pipeline.base.errors import ExportError

_FILE = "evaluator.json"
# A store is written to every now and then; a shorter deadline wants more.
_EVERY_SECONDS, _PER_TIMEOUT = 30.0, 10


class EvaluatorBeat:
    """The evaluator's side: a file beside the checkpoints, which becomes another one as long as it gets on.

    Args:
        timeout: Seconds without progress after which the chief gives up.
        done: Has the evaluator exported.
    """

    def __init__(self, training_dir: str, timeout: float, done: Callable[[], bool]) -> None:
        self._folder, self._done = training_dir, done
        self._every = min(_EVERY_SECONDS, timeout / _PER_TIMEOUT)
        self._told, self._at = 0.0, -self._every

    def tell(self, worked: float) -> None:
        """Writes that the evaluator got on, if it has since the last time."""
        now = time.monotonic()
        if worked <= self._told or now - self._at < self._every:
            return
        self._told, self._at = worked, now
        with contextlib.suppress(Exception):  # a store that is away
            # The chief may have published the folder: no store knows that it has gone.
            if fileio.exists(self._folder) and not self._done():
                write_whole(os.path.join(self._folder, _FILE), f"{time.time()}")


def read(training_dir: str) -> Any:
    """Returns what the evaluator told last; None if it has told nothing."""
    return read_json(os.path.join(training_dir, _FILE))


def forget(training_dir: str) -> None:
    """Removes it: training is over."""
    with contextlib.suppress(Exception):  # a store that is away
        if fileio.exists(path := os.path.join(training_dir, _FILE)):
            fileio.remove(path)


def missing(folder: str, timeout: float) -> ExportError:
    """Returns the error of an evaluator that does not export."""
    return ExportError(
        f"the evaluator of this cluster left no model in {folder}",
        expected=f"one after training, and until then a sign of progress within {timeout:g} s (trainer.stall_timeout)",
        todo="see the evaluator's log, or set trainer.distribution.evaluator to false",
    )
