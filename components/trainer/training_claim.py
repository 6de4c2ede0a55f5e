"""A claim of a training folder: two jobs of one pipeline, run at once, would write the same checkpoints.

On a service nobody else keeps them apart, and an object store has no locks: the claim is a file that is written anew
while its job lives. One that is not was left by a job that was killed, and is taken over. Whoever writes it looks first
whether it is still his: of two that came at once, or of one that slept and was taken over, only one goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Optional

import tensorflow as tf
from tfx.dsl.io import fileio

from tfx_estimator.components.files import is_stored
from tfx_estimator.components.files import write_whole as store_whole
from tfx_estimator.pipeline.errors import PipelineError, StoppedError, TrainingError
from tfx_estimator.pipeline.files import write_whole
from tfx_estimator.pipeline.log import get_logger

_ENDING = ".claim"
BEAT_SECONDS = 15.0
# How long a claim may stay as it is before it counts as left behind.
PATIENCE_SECONDS = 60.0
# Between tries to read it. In sum longer than TensorFlow's client of a bucket believes in the old size of a file: 5 s.
_RETRY_SECONDS = (0.25, 0.5, 1.0, 2.0, 4.0)

logger = get_logger("trainer")


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
    claim = _Claim(folder)
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
        self._path = folder.rstrip("/") + _ENDING
        self._mine = {"owner": uuid.uuid4().hex, **_process(), "beat": 0}
        self.lost: Optional[StoppedError] = None

    def take(self, settle: float, patience: float) -> None:
        """Takes it, and looks after `settle` seconds whether somebody else has done so at the same time."""
        left = _wait(self._path, self._folder, patience)
        fileio.makedirs(os.path.dirname(self._path))
        with contextlib.suppress(FileExistsError):
            _write(self._path, self._mine, new=left is None)
        time.sleep(settle)
        now = _read(self._path)
        if not self._is_mine(now):
            raise _taken(self._folder, now)

    def look(self) -> None:
        """Raises StoppedError if it is not this job's any more."""
        now = _read(self._path)
        if not self._is_mine(now):
            self.lost = StoppedError(
                f"another job{_where(now)} has taken over {self._folder}: this one gave no sign of life for a while",
                expected="one job of a pipeline at a time: they would write the same files",
                todo="wait for the other; then run this one again, if it is still wanted",
            )
            raise self.lost

    def live(self) -> None:
        """Gives a sign of life."""
        self.look()
        self._mine["beat"] += 1
        _write(self._path, self._mine)

    def give_back(self) -> None:
        """Removes it, if it is still there."""
        if self._is_mine(_read(self._path)):
            fileio.remove(self._path)

    def _is_mine(self, claim: Optional[dict[str, Any]]) -> bool:
        return claim is not None and claim.get("owner") == self._mine["owner"]


def _process() -> dict[str, Any]:
    """Names this process: its number tells something only in its namespace, of this start of its machine."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        space = f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
        return {"host": socket.gethostname(), "space": space, "pid": os.getpid()}
    return {"host": socket.gethostname(), "space": "", "pid": os.getpid()}


def _wait(path: str, folder: str, patience: float) -> Optional[dict[str, Any]]:
    """Waits until a claim that is there is gone, or shows that its job lives, or that it does not: then returns it."""
    first, deadline = _read(path), time.monotonic() + patience
    if first is None or _is_dead(first):
        return first
    logger.info(f"another job has claimed {folder}: waiting {patience:g} s for a sign of life of it")
    while time.monotonic() < deadline:
        time.sleep(min(1.0, patience / 10))
        if (now := _read(path)) is None:
            return None
        if now != first:
            raise _taken(folder, now)
    return first


def _taken(folder: str, claim: Optional[dict[str, Any]]) -> TrainingError:
    return TrainingError(
        f"another job trains in {folder}{_where(claim, ', ')}",
        expected="one job of a pipeline at a time: they would write the same checkpoints",
        todo="wait for it, or cancel it; or compile with another name or trainer.seed",
    )


def _where(claim: Optional[dict[str, Any]], before: str = " ") -> str:
    return f"{before}on {claim['host']}" if claim and "host" in claim else ""


def _is_dead(claim: dict[str, Any]) -> bool:
    """Is it of a process that has ended, for all that can be seen from here."""
    me = _process()
    if not me["space"] or claim.get("space") != me["space"]:
        return False
    return claim["pid"] == me["pid"] or not os.path.exists(f"/proc/{claim['pid']}")


def _beat(claim: _Claim, ended: threading.Event, seconds: float) -> None:
    while not ended.wait(seconds):
        try:
            claim.live()
        except StoppedError as error:
            logger.error(error.what)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        except Exception as error:  # file systems have errors of their own; the next beat may come through
            logger.info(f"the claim cannot be renewed: {error}")


def _write(path: str, claim: dict[str, Any], new: bool = False) -> None:
    """Writes it; raises FileExistsError if it is to be new and is not, where the file system can tell."""
    text = json.dumps(claim)
    if is_stored(path):
        store_whole(path, text)
    else:
        write_whole(path, text, new=new)


def _read(path: str) -> Optional[dict[str, Any]]:
    """Reads it; None if there is none.

    Raises:
        PipelineError: It is there, perhaps, and cannot be read.
    """
    for seconds in (*_RETRY_SECONDS, None):
        try:
            if not fileio.exists(path):
                return None
            with fileio.open(path) as file:
                return dict(json.loads(file.read()))
        except (fileio.NotFoundError, tf.errors.NotFoundError, FileNotFoundError):
            return None
        except Exception as error:  # the store is away, or the file is being written
            if seconds is None:
                raise PipelineError(
                    f"{path} cannot be read: {getattr(error, 'message', error)}",
                    expected="the claim of a job, which keeps others out of the folder beside it",
                    todo="see that this account may read it; remove it if it is damaged and no such job runs",
                ) from error
            time.sleep(seconds)
    return None
