"""Claims a training folder for one job: two concurrent jobs of a pipeline would write the same checkpoints.

On one machine a file lock excludes others, which ends with its process. The tasks do not inherit it, and end with that
process as well: see `pipeline.base.ending.keeper`.

On a service the claim is a file in a mounted folder or an object in a store: see `stored_claims`. A running job renews
it; one that is not renewed was left by a killed job, and is taken over. After writing it, a job reads it back: of
concurrent writers only one finds its own.
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
from typing import Any, Optional, TypeGuard, Union

from tfx_estimator.components.files import RETRY_SECONDS, read_json
from tfx_estimator.components.trainer.cluster.tf_config import CHIEF, resolve
from tfx_estimator.components.trainer.stored_claims import BRIEF, LONG, GcsClaim, S3Claim, claim_in_store, store_errors
from tfx_estimator.pipeline.base import files, lock
from tfx_estimator.pipeline.base.errors import StoppedError, TrainingError
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.config.paths import is_address

# Seconds between two heartbeats, and without one until a claim is abandoned.
_BEAT, _PATIENCE = 15.0, 60.0
_EXPECTED = "one job of a pipeline at a time: they would write the same checkpoints"

logger = get_logger("trainer")


@contextlib.contextmanager
def only_job(folder: str, is_on_service: bool) -> Iterator[Callable[[], object]]:
    """Excludes other jobs and runs of a pipeline from a folder: see `claimed` and `locked`."""
    place = resolve(os.environ)
    if place is not None and place.task.type != CHIEF:
        yield lambda: None
    elif is_on_service or os.environ.get("KFP_POD_NAME"):  # set in a pod of a step
        with claimed(folder) as check:
            yield check
    else:
        # Outside a service, `only_run` excludes other runs on this machine that share an object store.
        with contextlib.nullcontext() if is_address(folder) else locked(folder):
            yield lambda: None


@contextlib.contextmanager
def claimed(folder: str, beat: float = _BEAT, patience: float = _PATIENCE) -> Iterator[Callable[[], object]]:
    """Claims a folder, which need not exist; raises TrainingError if a running job has claimed it.

    Once the claim is lost, SIGTERM stops this process.

    Yields:
        A function that raises StoppedError if the claim is lost, to be called before publishing anything.
    """
    claim, ended = _Claim(folder), threading.Event()
    # A file is no lock: concurrent jobs have also written it after this delay.
    claim.take(0.0 if is_address(folder) else beat / 10, patience)
    beats = threading.Thread(target=claim.renew, args=(ended, beat), name="training-claim", daemon=True)
    beats.start()
    try:
        yield claim.check
    except BaseException as error:
        if claim.lost and error is not claim.lost:
            raise claim.lost from error
        raise
    finally:
        ended.set()
        beats.join()
        with contextlib.suppress(Exception):  # an unavailable store: the claim will be abandoned
            claim.release()


class ClaimFile:
    """A claim in a mounted folder. Concurrent jobs may all write it: the last one has it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, seconds: float = LONG) -> Optional[dict[str, Any]]:
        """Returns the claim, if any."""
        with store_errors(self._path):
            return read_json(self._path, RETRY_SECONDS)

    def write(self, claim: dict[str, Any], seen: Optional[dict[str, Any]], seconds: float = LONG) -> None:
        """Replaces the claim; if none was `seen`, keeps a newer one, where the file system has links."""
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        new = seen is None and (not os.path.exists(self._path) or files.read_json(self._path) is not None)
        with contextlib.suppress(FileExistsError):
            files.write_whole(self._path, json.dumps(claim), new=new)

    def remove(self, seen: dict[str, Any]) -> None:
        """Removes the claim."""
        os.remove(self._path)


class _Claim:
    """This job's claim on a folder."""

    def __init__(self, folder: str) -> None:
        self._folder, path = folder, f"{folder.rstrip('/')}.claim"
        self._file: Union[ClaimFile, GcsClaim, S3Claim] = (
            claim_in_store(path) if is_address(folder) else ClaimFile(path)
        )
        self._mine = {"owner": uuid.uuid4().hex, **process(), "beat": 0}
        self.lost: Optional[StoppedError] = None

    def take(self, settle: float, patience: float) -> None:
        """Writes the claim once an existing one is abandoned; reads it back after `settle` seconds."""
        seen = first = self._file.read()
        if first is not None and not _is_dead(first):
            logger.info(f"another job has claimed {self._folder}: waiting {patience:g} s for a heartbeat of it")
            pause, waited = min(1.0, patience / 10), 0.0
            # Only the pauses count: a store that does not respond to this job gets no heartbeat of the other, either.
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

    def check(self, seconds: float = LONG) -> dict[str, Any]:
        """Returns the stored claim; raises StoppedError if it is no longer this job's."""
        if self._is_mine(now := self._file.read(seconds)):
            return now
        what = f"another job{_where(now)} has taken over {self._folder}: this one has not renewed its claim in time"
        todo = "wait for the other; then run this one again, if it is still wanted"
        self.lost = StoppedError(what, expected=_EXPECTED, todo=todo)
        raise self.lost

    def renew(self, ended: threading.Event, beat: float) -> None:
        """Writes heartbeats until `ended` is set."""
        while not ended.wait(beat):
            try:
                now = self.check(BRIEF)
                self._mine["beat"] += 1
                self._file.write(self._mine, now, BRIEF)
            except StoppedError as error:
                logger.error(error.what)
                os.kill(os.getpid(), signal.SIGTERM)
                return
            except Exception as error:  # file systems have errors of their own; the next beat may come through
                logger.warning(f"the claim cannot be renewed: {error}")

    def release(self) -> None:
        """Removes the claim, if it is still this job's."""
        if self._is_mine(now := self._file.read(BRIEF)):
            self._file.remove(now)

    def _is_mine(self, claim: Optional[dict[str, Any]]) -> TypeGuard[dict[str, Any]]:
        return claim is not None and claim.get("owner") == self._mine["owner"]


def _is_dead(claim: dict[str, Any]) -> bool:
    """True if the claim is known to be of an ended process."""
    return is_here(claim) and (claim["pid"] == os.getpid() or not os.path.exists(f"/proc/{claim['pid']}"))


def _where(claim: Optional[dict[str, Any]], before: str = "") -> str:
    return f"{before} on {claim['host']}" if claim and "host" in claim else ""


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Excludes other runs from a folder, which need not exist; raises TrainingError, or as `lock.take_for_run`."""
    path = f"{folder.rstrip('/')}.lock"
    fd = lock.take_for_run(lambda: _take(path), path, folder)
    if fd is None:
        raise _taken(folder, path, _read(path))
    try:
        with contextlib.suppress(OSError):  # such as a full disk: errors of other runs then lack the details
            os.ftruncate(fd, 0)
            os.write(fd, json.dumps({**process(), "since": time.time()}).encode())
        yield
    finally:
        lock.give_back(path, fd)


def process() -> dict[str, Any]:
    """Identifies this process; `space` is the machine's boot and the pid namespace in which its pid is valid."""
    space = ""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        space = f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    return {"host": socket.gethostname(), "space": space, "pid": os.getpid()}


def is_here(holder: dict[str, Any]) -> bool:
    """True if a claim's pid is of this pid namespace and boot; else it may be another process's here."""
    space = process()["space"]
    return bool(space) and holder.get("space") == space


def _take(path: str) -> Optional[int]:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    for _ in range(20):  # until a process that has just taken the lock has written its identity
        if (fd := lock.take(path)) is not None or _read(path):
            return fd
        time.sleep(0.05)
    return None


def _read(path: str) -> Optional[dict[str, Any]]:
    """Returns the identity of the lock's holder, if it has written one."""
    with contextlib.suppress(OSError):
        return files.read_json(path)
    return None


def _taken(folder: str, path: str, holder: Optional[dict[str, Any]]) -> TrainingError:
    who, end = "", "end it"
    if holder:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder["since"]))
        who = f": process {holder['pid']} on {holder['host']}, since {since}"
        end += f" (kill {holder['pid']})" if is_here(holder) else ""
    error = TrainingError(
        f"another run uses {folder}{who}",
        expected="one run of a pipeline at a time: they would write the same checkpoints",
        todo=f"wait for it, or {end} and run this again, which resumes from its last checkpoint; or name another "
        f"pipeline_root; {lock.if_lost(path)}",
    )
    error.retryable = True
    return error
