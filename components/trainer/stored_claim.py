"""A claim in an object store, which has no locks, and where nothing is written on a condition.

Lamport's bakery: each job writes files of its own only. It says that it chooses, takes a number above all that are
there, and has the folder once nobody with a smaller number is left, nor anybody who chooses. What a store is asked for
is but that a file, once it was written, is in every list. A job that gave no sign of life is declared over, by a file
that stays, before it is passed: should it wake, it finds that.

Source: L. Lamport, A new solution of Dijkstra's concurrent programming problem, CACM 17 (8), 1974.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from typing import Any, Optional

import tensorflow as tf
from tfx.dsl.io import fileio

from tfx_estimator.components.files import write_whole
from tfx_estimator.components.trainer.claim_file import ENDING, is_dead, lost, process, read_claim, taken
from tfx_estimator.pipeline.errors import StoppedError
from tfx_estimator.pipeline.log import get_logger

_DIGITS = 8
# In place of a number; after an owner's name.
_CHOOSING, _OVER = "choosing", "over"

logger = get_logger("trainer")


class StoredClaim:
    """This job's claim of a folder: see `training_claim`.

    Args:
        folder: The training folder, which need not be there.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        # Beside the folder: FOLDER.claim.00000001.OWNER
        self._parent, name = os.path.split(folder.rstrip("/"))
        self._prefix = f"{name}{ENDING}."
        self._owner = uuid.uuid4().hex
        self._said = {**process(), "beat": 0}
        self._mine = ""
        self._ended: list[str] = []
        self.lost: Optional[StoppedError] = None

    def take(self, settle: float, patience: float) -> None:
        """Takes it.

        Args:
            settle: A tenth of the seconds between two signs of life.
            patience: Seconds to wait for one of somebody else's.

        Raises:
            TrainingError: A living job came before.
            PipelineError: A claim cannot be read.
        """
        fileio.makedirs(self._parent)
        try:
            self._choose()
            self._wait(10 * settle, patience)
        except BaseException:
            with contextlib.suppress(Exception):  # a store that is away: it will look left behind
                self.give_back()
            raise

    def look(self) -> None:
        """Raises StoppedError if it is not this job's any more."""
        names = self._names()
        before = [name for name in self._before(names) if not name.startswith(_CHOOSING)]
        if before or self._is_over(names):
            others = before or [name for name in names if name[:_DIGITS].isdigit() and name != self._mine]
            self.lost = lost(self._folder, read_claim(self._path(others[0])) if others else None)
            raise self.lost

    def live(self) -> None:
        """Gives a sign of life."""
        self.look()
        self._beat()

    def give_back(self) -> None:
        """Removes all that this job has written."""
        # That somebody is over as long as this one's own number is there.
        for name in (f"{_CHOOSING}.{self._owner}", *self._ended, self._mine):
            if name:
                self._remove(name)

    def _choose(self) -> None:
        self._write(choosing := f"{_CHOOSING}.{self._owner}")
        numbers = [int(name[:_DIGITS]) for name in self._names() if name[:_DIGITS].isdigit()]
        self._mine = f"{1 + max(numbers, default=0):0{_DIGITS}}.{self._owner}"
        self._write(self._mine)
        self._remove(choosing)

    def _wait(self, beat: float, patience: float) -> None:
        """Waits until nobody is before this one."""
        seen: dict[str, tuple[dict[str, Any], float]] = {}
        beaten = time.monotonic()
        while True:
            names = self._names()
            if self._is_over(names):
                raise taken(self._folder, None)
            if not (before := self._before(names)):
                return
            for name in before:
                if (now := read_claim(self._path(name))) is None:
                    continue
                if name not in seen:
                    seen[name] = now, time.monotonic()
                    if not is_dead(now):
                        logger.info(
                            f"another job has claimed {self._folder}: waiting {patience:g} s for a sign of life of it"
                        )
                first, since = seen[name]
                if now != first:
                    raise taken(self._folder, now)
                if is_dead(now) or time.monotonic() - since > patience:
                    self._end(name, now)
            if time.monotonic() - beaten > beat:
                # Those that came later wait for this one.
                beaten = time.monotonic()
                self._beat()
            time.sleep(min(1.0, patience / 10))

    def _end(self, name: str, seen: dict[str, Any]) -> None:
        """Declares a job over."""
        self._write(over := f"{_OVER}.{_owner(name)}")
        if (now := read_claim(self._path(name))) not in (seen, None):
            self._remove(over)
            raise taken(self._folder, now)
        self._ended.append(over)
        self._remove(name)

    def _before(self, names: list[str]) -> list[str]:
        """Returns the files of those that are before this one, or may be."""
        others = [name for name in names if _owner(name) != self._owner and f"{_OVER}.{_owner(name)}" not in names]
        return [name for name in others if name.startswith(_CHOOSING) or name < self._mine]

    def _is_over(self, names: list[str]) -> bool:
        return self._mine not in names or f"{_OVER}.{self._owner}" in names

    def _names(self) -> list[str]:
        found = [name.rstrip("/") for name in fileio.listdir(self._parent)]
        names = [name.removeprefix(self._prefix) for name in found if name.startswith(self._prefix)]
        return sorted(name for name in names if len(_owner(name)) == len(self._owner))

    def _path(self, name: str) -> str:
        return os.path.join(self._parent, self._prefix + name)

    def _beat(self) -> None:
        self._said["beat"] += 1
        self._write(self._mine)

    def _write(self, name: str) -> None:
        write_whole(self._path(name), json.dumps(self._said))

    def _remove(self, name: str) -> None:
        """Removes a file, which somebody else may have removed."""
        with contextlib.suppress(tf.errors.NotFoundError, fileio.NotFoundError, FileNotFoundError):
            fileio.remove(self._path(name))


def _owner(name: str) -> str:
    return name.partition(".")[2]
