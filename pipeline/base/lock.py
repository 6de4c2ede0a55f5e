"""File locks, which end with the process that holds them. Standard library only.

flock(2) also works between machines on NFS, from Linux 2.6.12 on.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from typing import Optional

from tfx_estimator.pipeline.base.errors import RETRYABLE, PipelineError
from tfx_estimator.pipeline.base.log import get_logger

_POLL_SECONDS = 0.05
# For the lock of a lost machine: NFS 4 gives a client 90 s to come back.
_LOST_SECONDS, _LOST_POLL_SECONDS = 150.0, 1.0
# Some user-space file systems have no locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)

logger = get_logger("pipeline")


def try_lock(fd: int) -> Optional[bool]:
    """Locks an open file; returns False if another process holds it, None if the file system has no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        # Some NFS map it to fcntl(2), which may raise EACCES.
        if error.errno == errno.EACCES:
            return False
        if error.errno in _NO_LOCKS:
            return None
        raise
    return True


@contextlib.contextmanager
def held(path: str, what: str, seconds: float = 120.0) -> Iterator[None]:
    """Waits for the lock of a file, and removes the file afterwards; `what` names the action, for example `push`."""
    deadline = time.monotonic() + seconds
    while (fd := take(path)) is None:
        if time.monotonic() > deadline:
            raise PipelineError(
                f"another {what} has held {path} for {seconds:g} s",
                expected=f"a {what} that holds it only briefly",
                todo="see whether one is stopped (`fuser` names the process), end it, and run this again",
            )
        time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        give_back(path, fd)


def take(path: str) -> Optional[int]:
    """Creates and locks a file; returns its descriptor, None if another process holds it.

    The holder removes the file before closing it. On a file system without locks, it is always taken.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        # The former holder may have removed it meanwhile.
        if try_lock(fd) is not False and os.path.samestat(os.fstat(fd), os.stat(path)):
            fd, taken = -1, fd
            return taken
    except FileNotFoundError:
        pass
    finally:
        if fd >= 0:
            os.close(fd)
    return None


def give_back(path: str, fd: int) -> None:
    """Removes and closes the file of `take`; errors are ignored, as the work under the lock is done."""
    # Removed while it is held, so that it is not another process's file.
    with contextlib.suppress(OSError):
        os.remove(path)
    with contextlib.suppress(OSError):
        os.close(fd)


def take_for_run(attempt: Callable[[], Optional[int]], path: str, folder: str) -> Optional[int]:
    """Locks a folder for a run; `attempt` returns the descriptor of the locked file, or None.

    If a launcher restarts tasks, the former run's machine may be lost, and its lock expires late: it is waited for. On
    a file system without locks, the folder is not locked.
    """
    seconds = _LOST_SECONDS if RETRYABLE in os.environ else 0.0
    began, is_logged = time.monotonic(), False
    try:
        while (fd := attempt()) is None and time.monotonic() - began < seconds:
            if not is_logged:
                logger.info(f"waiting at most {seconds:g} s for the run that has locked {path}")
                is_logged = True
            time.sleep(_LOST_POLL_SECONDS)
        if fd is not None and try_lock(fd) is None:
            logger.warning(f"the file system of {path} has no locks: make sure that no other run uses {folder}")
    except OSError as error:
        found = PipelineError(
            f"{path} cannot be locked: {error.strerror or error}",
            expected="a file system with working locks, or one that reports that it has none",
            todo="run the same again; if the error stays, check the mount and its server",
        )
        found.retryable = True
        raise found from error
    return fd


def if_lost(path: str) -> str:
    """Returns the advice for a lock without a holder."""
    return f"on NFS 3 the lock of a lost machine stays: then remove {path}"


def in_use(database: str) -> PipelineError:
    """Returns the error of an SQLite database that another process has locked."""
    return PipelineError(
        f"{database} is locked: another process uses it",
        expected="a database that no other program locks while a pipeline runs",
        todo="end that program (`fuser` names it), or wait for it; then run the same again",
    )
