"""A claim of a training folder: two jobs of one pipeline, run at once, would write the same checkpoints.

On this machine a lock keeps them apart. On a service nobody does: the claim is a file that is written anew while its
job lives. One that is not was left by a job that was killed, and is taken over. Whoever writes it looks first whether
it is still his: of two that came at once, or of one that slept and was taken over, only one goes on. In an object store
see `stored_claim`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Optional, Union

from tfx.dsl.io import fileio

from tfx_estimator.components.trainer.claim_file import ENDING, is_dead, lost, process, read_claim, taken
from tfx_estimator.components.trainer.cluster.tf_config import CHIEF, resolve
from tfx_estimator.components.trainer.folder_lock import locked
from tfx_estimator.components.trainer.stored_claim import StoredClaim
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.errors import StoppedError
from tfx_estimator.pipeline.files import write_whole
from tfx_estimator.pipeline.log import get_logger

BEAT_SECONDS = 15.0
# How long a claim may stay as it is before it counts as left behind.
PATIENCE_SECONDS = 60.0
# Kubeflow Pipelines 1 sets it.
_KFP_POD = "KFP_POD_NAME"

logger = get_logger("trainer")


@contextlib.contextmanager
def only_job(folder: str, is_on_service: bool) -> Iterator[Callable[[], None]]:
    """Keeps other jobs and runs of a pipeline out of a folder.

    Args:
        folder: As of `claimed`.
        is_on_service: Is the pipeline known to run on a service.

    Yields:
        As `claimed`.

    Raises:
        TfxEstimatorError: As `claimed`, or another run of this machine has it.
    """
    place = resolve(os.environ)
    if place is not None and place.task.type != CHIEF:
        yield lambda: None
    elif is_on_service or os.environ.get(_KFP_POD):
        with claimed(folder) as check:
            yield check
    else:
        # Outside a service `only_run` keeps those of this machine apart that share an object store.
        with contextlib.nullcontext() if is_address(folder) else locked(folder):
            yield lambda: None


@contextlib.contextmanager
def claimed(
    folder: str, beat: float = BEAT_SECONDS, patience: float = PATIENCE_SECONDS
) -> Iterator[Callable[[], None]]:
    """Claims a folder for the context. Once it is lost, SIGTERM ends what this process does in it.

    Args:
        folder: The training folder, which need not be there.
        beat: Seconds between two signs of life.
        patience: Seconds to wait for one of somebody else's; at least two beats.

    Yields:
        What raises StoppedError if the claim is lost; to be called before what others would see.

    Raises:
        TrainingError: A living job has it.
        StoppedError: Another job has taken it over meanwhile.
        PipelineError: The claim cannot be read.
    """
    claim = StoredClaim(folder) if is_address(folder) else _Claim(folder)
    claim.take(beat / 10, patience)
    ended = threading.Event()
    beats = threading.Thread(target=_beat, args=(claim, ended, beat), name="training-claim", daemon=True)
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
        self._folder = folder
        self._path = folder.rstrip("/") + ENDING
        self._mine = {"owner": uuid.uuid4().hex, **process(), "beat": 0}
        self.lost: Optional[StoppedError] = None

    def take(self, settle: float, patience: float) -> None:
        """Takes it, and looks after `settle` seconds whether somebody else has done so at the same time."""
        left = _wait(self._path, self._folder, patience)
        fileio.makedirs(os.path.dirname(self._path))
        with contextlib.suppress(FileExistsError):
            write_whole(self._path, json.dumps(self._mine), new=left is None)
        time.sleep(settle)
        now = read_claim(self._path)
        if not self._is_mine(now):
            raise taken(self._folder, now)

    def look(self) -> None:
        """Raises StoppedError if it is not this job's any more."""
        now = read_claim(self._path)
        if not self._is_mine(now):
            self.lost = lost(self._folder, now)
            raise self.lost

    def live(self) -> None:
        """Gives a sign of life."""
        self.look()
        self._mine["beat"] += 1
        write_whole(self._path, json.dumps(self._mine))

    def give_back(self) -> None:
        """Removes it, if it is still there."""
        if self._is_mine(read_claim(self._path)):
            fileio.remove(self._path)

    def _is_mine(self, claim: Optional[dict[str, Any]]) -> bool:
        return claim is not None and claim.get("owner") == self._mine["owner"]


def _wait(path: str, folder: str, patience: float) -> Optional[dict[str, Any]]:
    """Waits until a claim that is there is gone, or shows that its job lives, or that it does not: then returns it."""
    first, deadline = read_claim(path), time.monotonic() + patience
    if first is None or is_dead(first):
        return first
    logger.info(f"another job has claimed {folder}: waiting {patience:g} s for a sign of life of it")
    while time.monotonic() < deadline:
        time.sleep(min(1.0, patience / 10))
        if (now := read_claim(path)) is None:
            return None
        if now != first:
            raise taken(folder, now)
    return first


def _beat(claim: Union[_Claim, StoredClaim], ended: threading.Event, seconds: float) -> None:
    while not ended.wait(seconds):
        try:
            claim.live()
        except StoppedError as error:
            logger.error(error.what)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        except Exception as error:  # file systems have errors of their own; the next beat may come through
            logger.info(f"the claim cannot be renewed: {error}")
