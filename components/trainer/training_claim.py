"""A claim of a training folder: two jobs of one pipeline, run at once, would write the same checkpoints.

On this machine a lock keeps them apart, which ends with the process that has it, however that ends. Its tasks do not
inherit it: they end with it as well, see `pipeline.base.ending.keeper`.

On a service the claim lies in a file of a mounted folder or, in Cloud Storage, in the metadata of an object. It is
written anew while its job lives; one that is not was left by a killed job, and is taken over. Whoever writes it looks
then whether it is his: of those at once one goes on.
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
from tfx_estimator.pipeline.base import lock
from tfx_estimator.pipeline.base.errors import PipelineError, StoppedError, TrainingError
from tfx_estimator.pipeline.base.files import write_whole
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.config.paths import is_address, reject_store

# Seconds between two signs of life; and without one, until a claim counts as left behind.
_BEAT, _PATIENCE = 15.0, 60.0
# How long the store may take for an answer, and how long it is asked again; for a sign of life, and with it an answer,
# less than the time after which a claim counts as left behind.
_ANSWER_SECONDS, LONG, BRIEF = 10.0, 120.0, 10.0
_EXPECTED = "one job of a pipeline at a time: they would write the same checkpoints"

logger = get_logger("trainer")


@contextlib.contextmanager
def only_job(folder: str, is_on_service: bool) -> Iterator[Callable[[], object]]:
    """Keeps other jobs and runs of a pipeline out of a folder: see `claimed`, and `locked`."""
    place = resolve(os.environ)
    if place is not None and place.task.type != CHIEF:
        yield lambda: None
    elif is_on_service or os.environ.get("KFP_POD_NAME"):  # set in a pod of a step
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


class ClaimFile:
    """A claim in a mounted folder, which several that come at once may all write: the last of them has it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, seconds: float = LONG) -> Optional[dict[str, Any]]:
        """Returns what it says; None if there is none."""
        with _used(self._path):
            return read_json(self._path, RETRY_SECONDS)

    def write(self, claim: dict[str, Any], seen: Optional[dict[str, Any]], seconds: float = LONG) -> None:
        """Replaces what was seen; where nothing was, leaves what is there now, if the file system has links."""
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        with contextlib.suppress(FileExistsError):
            write_whole(self._path, json.dumps(claim), new=seen is None)

    def remove(self, seen: dict[str, Any]) -> None:
        """Removes what was seen."""
        os.remove(self._path)


class StoredClaim:
    """A claim in Cloud Storage, which changes an object only for who names the generation that it has."""

    def __init__(self, path: str) -> None:
        self._path = path
        bucket, _, self._name = path.removeprefix("gs://").partition("/")
        if reason := reject_store(path):
            raise PipelineError(f"{path}: {reason}", expected="gs://BUCKET/FOLDER, or a folder", todo="name one")
        with _used(path):
            from google.cloud import storage
            from google.cloud.storage.retry import DEFAULT_RETRY

            self._retry = DEFAULT_RETRY.with_timeout
            self._bucket = storage.Client(project=None).bucket(bucket)

    def read(self, seconds: float = LONG) -> Optional[dict[str, Any]]:
        """Returns what it says, and its generation; None if there is none."""
        with _used(self._path):
            blob = self._bucket.get_blob(self._name, timeout=_ANSWER_SECONDS, retry=self._retry(seconds))
            return blob and {**json.loads(blob.metadata["claim"]), "generation": blob.generation}

    def write(self, claim: dict[str, Any], seen: Optional[dict[str, Any]], seconds: float = LONG) -> None:
        """Replaces what was seen, or makes it where that is None; leaves what is there if it is anything else."""
        blob, generation = self._bucket.blob(self._name), seen["generation"] if seen else 0
        blob.metadata = {"claim": json.dumps(claim)}
        with _used(self._path):
            again = {"timeout": _ANSWER_SECONDS, "retry": self._retry(seconds)}
            blob.upload_from_string(b"", if_generation_match=generation, **again)

    def remove(self, seen: dict[str, Any]) -> None:
        """Removes what was seen; leaves what is there if it is anything else."""
        with _used(self._path):
            again = {"timeout": _ANSWER_SECONDS, "retry": self._retry(BRIEF)}
            self._bucket.blob(self._name).delete(if_generation_match=seen["generation"], **again)


@contextlib.contextmanager
def _used(path: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # which is the store's
        # Whoever looks then finds what another has written; or he himself, if the answer to the first try was lost.
        if getattr(error, "code", None) == 412:
            return
        raise PipelineError(
            f"{path} cannot be read or written: {getattr(error, 'message', error)}",
            expected="the claim of a job, which keeps others out of the folder beside it",
            todo="see that the bucket is there, and that this account may read and write it: `gcloud auth "
            "application-default login`; remove the claim if it is damaged and no such job runs",
        ) from error


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


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Keeps other runs out of a folder, which need not be there: raises TrainingError, or as `lock.take_for_run`."""
    path = f"{folder.rstrip('/')}.lock"
    fd = lock.take_for_run(lambda: _take(path), path, folder)
    if fd is None:
        raise _taken(folder, path, _read(path))
    try:
        with contextlib.suppress(OSError):  # a full disk, say: others are told less
            os.ftruncate(fd, 0)
            os.write(fd, json.dumps({**process(), "since": time.time()}).encode())
        yield
    finally:
        lock.give_back(path, fd)


def process() -> dict[str, Any]:
    """Names this process: its number tells something only in its namespace, of this start of its machine."""
    space = ""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        space = f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    return {"host": socket.gethostname(), "space": space, "pid": os.getpid()}


def is_here(holder: dict[str, Any]) -> bool:
    """Does the number of a process that was named so tell something here: elsewhere it may be another's."""
    space = process()["space"]
    return bool(space) and holder.get("space") == space


def _take(path: str) -> Optional[int]:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    for _ in range(20):  # until whoever has just taken it has said who he is
        if (fd := lock.take(path)) is not None or _read(path):
            return fd
        time.sleep(0.05)
    return None


def _read(path: str) -> Optional[dict[str, Any]]:
    """Who has it, as far as he has said so."""
    with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
        return dict(json.load(file))
    return None


def _taken(folder: str, path: str, holder: Optional[dict[str, Any]]) -> TrainingError:
    who, end = "", "end it"
    if holder:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder["since"]))
        who = f": process {holder['pid']} on {holder['host']}, since {since}"
        end += f" (kill {holder['pid']})" if is_here(holder) else ""
    error = TrainingError(
        f"another run is at work in {folder}{who}",
        expected="one run of a pipeline at a time: they would write the same checkpoints",
        todo=f"wait for it, or {end} and run this again, which goes on from its last checkpoint; or name another "
        f"pipeline_root; {lock.if_lost(path)}",
    )
    error.retryable = True
    return error
