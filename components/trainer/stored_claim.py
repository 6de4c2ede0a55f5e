"""A claim in an object store, which has no locks, and where nothing is written on a condition.

Lamport's bakery: each job writes files of its own only. It says that it chooses, takes a number above all that are
there, and has the folder once nobody with a smaller number is left, nor anybody who chooses. What a store is asked for
is but that a file, once it was written, is in every list. A job that gave no sign of life is declared over, by a file
of whoever passes it, before that: should it wake, it finds that.

Such a file outlives the claim of who wrote it: a write that was stalled may arrive after that has ended, and whose it
is would find itself alone. It goes with the one that is over, as the last of its files; of one that was killed, with
the first claim after a week, which is as long as Vertex AI lets a job live.

Source: L. Lamport, A new solution of Dijkstra's concurrent programming problem, CACM 17 (8), 1974.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
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
# In place of a number: of one that chooses; of one that is over, then with the name of who says so as well.
_CHOOSING, _OVER = "choosing", "over"
_NAME = re.compile(rf"(\d{{{_DIGITS}}}|{_CHOOSING}|{_OVER})(\.[0-9a-f]{{32}}){{1,2}}")
_KEPT_SECONDS = 7 * 86_400.0

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
        self._dead: list[str] = []
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
            with contextlib.suppress(Exception):  # what stays is in nobody's way
                self._sweep()
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
        # It may have come late: see above.
        self.look()

    def give_back(self) -> None:
        """Removes all that there is of this job; not that others are over, as long as they may live."""
        self._remove_all(self._owner)
        for name in self._dead:
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
        # A file of this one's own: that it takes its word back is not that somebody else does.
        self._write(over := f"{_OVER}.{_owner(name)}.{self._owner}", at=time.time())
        if (now := read_claim(self._path(name))) not in (seen, None):
            self._remove(over)
            raise taken(self._folder, now)
        if is_dead(seen):
            self._dead.append(over)
        self._remove(name)

    def _sweep(self) -> None:
        """Removes what is left of those that were declared over so long ago that none of them lives."""
        for name in self._names():
            said = read_claim(self._path(name)) if _is_end(name) else None
            if said and time.time() - said.get("at", 0.0) > _KEPT_SECONDS:
                self._remove_all(_owner(name))

    def _before(self, names: list[str]) -> list[str]:
        """Returns the files of those that are before this one, or may be."""
        over = {_owner(name) for name in names if _is_end(name)}
        others = [name for name in names if _owner(name) not in (self._owner, *over)]
        return [name for name in others if name.startswith(_CHOOSING) or name < self._mine]

    def _is_over(self, names: list[str]) -> bool:
        return self._mine not in names or any(_is_end(name) and _owner(name) == self._owner for name in names)

    def _names(self) -> list[str]:
        """Returns the files of all claims of the folder; of one owner, that it is over comes last."""
        found = [name.rstrip("/") for name in fileio.listdir(self._parent)]
        names = [name.removeprefix(self._prefix) for name in found if name.startswith(self._prefix)]
        return sorted(name for name in names if _NAME.fullmatch(name))

    def _path(self, name: str) -> str:
        return os.path.join(self._parent, self._prefix + name)

    def _beat(self) -> None:
        self._said["beat"] += 1
        self._write(self._mine)

    def _write(self, name: str, **more: Any) -> None:
        write_whole(self._path(name), json.dumps({**self._said, **more}))

    def _remove_all(self, owner: str) -> None:
        for name in self._names():
            if _owner(name) == owner:
                self._remove(name)

    def _remove(self, name: str) -> None:
        """Removes a file, which somebody else may have removed."""
        with contextlib.suppress(tf.errors.NotFoundError, fileio.NotFoundError, FileNotFoundError):
            fileio.remove(self._path(name))


def _owner(name: str) -> str:
    """Returns whose claim a file is of."""
    return name.split(".")[1]


def _is_end(name: str) -> bool:
    return name.startswith(f"{_OVER}.")
