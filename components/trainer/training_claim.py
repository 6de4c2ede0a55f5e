"""A claim of a training folder: two jobs of one pipeline, run at once, would write the same checkpoints.

On this machine a lock keeps them apart. On a service the claim is written anew while its job lives; one that is not was
left by a killed job, and is taken over. Whoever writes it looks then whether it is his: of those at once one goes on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Optional, TypeGuard, Union

from tfx_estimator.components.trainer.claim_file import BRIEF, LONG, ClaimFile, StoredClaim
from tfx_estimator.components.trainer.cluster.tf_config import CHIEF, resolve
from tfx_estimator.components.trainer.folder_lock import is_here, locked, process
from tfx_estimator.pipeline.base.errors import StoppedError, TrainingError
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.config.paths import is_address

# Seconds between two signs of life; and without one, until a claim counts as left behind.
_BEAT, _PATIENCE = 15.0, 60.0
_EXPECTED = "one job of a pipeline at a time: they would write the same checkpoints"

logger = get_logger("trainer")


@contextlib.contextmanager
def only_job(folder: str, is_on_service: bool) -> Iterator[Callable[[], object]]:
    """Keeps other jobs and runs of a pipeline out of a folder: see `claimed`, and `locked`."""
    place = resolve(os.environ)
    if place is not None and place.task.type != CHIEF:
        yield lambda: None
    elif is_on_service or os.environ.get("KFP_POD_NAME"):  # Kubeflow Pipelines 1 sets it
        with claimed(folder) as check:
            yield check
    else:
        # Outside a service `only_run` keeps those of this machine apart that share an object store.
        with contextlib.nullcontext() if is_address(folder) else locked(folder):
            yield lambda: None


@contextlib.contextmanager
def claimed(folder: str, beat: float = _BEAT, patience: float = _PATIENCE) -> Iterator[Callable[[], object]]:
    """Claims a folder, which need not be there; raises TrainingError if a living job has it.

    Yields what raises StoppedError if the claim is lost, to be called before what others would see; once that is found,
    SIGTERM ends what this process does in the folder.
    """
    claim, ended = _Claim(folder), threading.Event()
    # A file is no lock: by then, who came at the same time has written it as well.
    claim.take(0.0 if is_address(folder) else beat / 10, patience)
    beats = threading.Thread(target=claim.live, args=(ended, beat), name="training-claim", daemon=True)
    beats.start()
    try:
        yield claim.look
    except BaseException as error:
        if claim.lost and error is not claim.lost:
            raise claim.lost from error
        raise
    finally:
        ended.set()
        beats.join()
        with contextlib.suppress(Exception):  # a store that is away: it will look left behind
            claim.give_back()


class _Claim:
    """This job's claim of a folder."""

    def __init__(self, folder: str) -> None:
        self._folder, path = folder, f"{folder.rstrip('/')}.claim"
        self._file: Union[ClaimFile, StoredClaim] = StoredClaim(path) if is_address(folder) else ClaimFile(path)
        self._mine = {"owner": uuid.uuid4().hex, **process(), "beat": 0}
        self.lost: Optional[StoppedError] = None

    def take(self, settle: float, patience: float) -> None:
        """Takes it, once what is there has given no sign of life, and looks after `settle` seconds who has it."""
        seen = first = self._file.read()
        if first is not None and not _is_dead(first):
            logger.info(f"another job has claimed {self._folder}: waiting {patience:g} s for a sign of life of it")
            pause, waited = min(1.0, patience / 10), 0.0
            # Counted are the pauses alone: a store that does not answer this job hears nothing of the other either.
            while seen == first and waited < patience:
                time.sleep(pause)
                waited += pause
                seen = self._file.read()
        if seen in (first, None):
            self._file.write(self._mine, seen)
            time.sleep(settle)
        if not self._is_mine(now := self._file.read()):
            what = f"another job trains in {self._folder}{_where(now, ',')}"
            todo = "wait for it, or cancel it; or compile with another name or trainer.seed"
            raise TrainingError(what, expected=_EXPECTED, todo=todo)

    def look(self, seconds: float = LONG) -> dict[str, Any]:
        """Returns what it says; raises StoppedError if it is not this job's any more."""
        if self._is_mine(now := self._file.read(seconds)):
            return now
        what = f"another job{_where(now)} has taken over {self._folder}: this one gave no sign of life for a while"
        todo = "wait for the other; then run this one again, if it is still wanted"
        self.lost = StoppedError(what, expected=_EXPECTED, todo=todo)
        raise self.lost

    def live(self, ended: threading.Event, beat: float) -> None:
        """Gives signs of life."""
        while not ended.wait(beat):
            try:
                now = self.look(BRIEF)
                self._mine["beat"] += 1
                self._file.write(self._mine, now, BRIEF)
            except StoppedError as error:
                logger.error(error.what)
                os.kill(os.getpid(), signal.SIGTERM)
                return
            except Exception as error:  # file systems have errors of their own; the next beat may come through
                logger.warning(f"the claim cannot be renewed: {error}")

    def give_back(self) -> None:
        """Removes it, if it is still this job's."""
        if self._is_mine(now := self._file.read(BRIEF)):
            self._file.remove(now)

    def _is_mine(self, claim: Optional[dict[str, Any]]) -> TypeGuard[dict[str, Any]]:
        return claim is not None and claim.get("owner") == self._mine["owner"]


def _is_dead(claim: dict[str, Any]) -> bool:
    """Is it of a process that has ended, for all that can be seen from here."""
    return is_here(claim) and (claim["pid"] == os.getpid() or not os.path.exists(f"/proc/{claim['pid']}"))


def _where(claim: Optional[dict[str, Any]], before: str = "") -> str:
    return f"{before} on {claim['host']}" if claim and "host" in claim else ""
