"""Locks of files, which end with the process that holds them. Standard library only.

flock(2) also holds between the machines of an NFS, from Linux 2.6.12 on.
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
# For the lock of a machine that was lost: NFS 4 gives a client 90 s to come back.
_LOST_SECONDS, _LOST_POLL_SECONDS = 150.0, 1.0
# Some file systems of user space have no locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)

logger = get_logger("pipeline")


def try_lock(fd: int) -> Optional[bool]:
    """Locks an open file; tells whether this process holds it now, None if the file system has no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        # By some of NFS it is one of fcntl(2), which may say so.
        if error.errno == errno.EACCES:
            return False
        if error.errno in _NO_LOCKS:
            return None
        raise
    return True


@contextlib.contextmanager
def held(path: str, what: str, seconds: float = 120.0) -> Iterator[None]:
    """Waits until nobody else holds a file for what each does, a `push` say, and holds it; it is there only so long."""
    deadline = time.monotonic() + seconds
    while (fd := take(path)) is None:
        if time.monotonic() > deadline:
            raise PipelineError(
                f"another {what} has held {path} for {seconds:g} s",
                expected=f"a {what} that holds it for moments only",
                todo="see whether one is stopped (`fuser` names the process), end it, and run this again",
            )
        time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        give_back(path, fd)


def take(path: str) -> Optional[int]:
    """Locks a file, which is made if it is not there; returns it open, None if somebody else holds it.

    Whoever has it removes it before it is closed. Where the file system has no locks, it is taken as well.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        # Whoever held it before has removed it meanwhile, perhaps.
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
    """Removes and closes a file that was taken; what was done under it is done, whatever the file system says."""
    # While it is held: nobody else's.
    with contextlib.suppress(OSError):
        os.remove(path)
    with contextlib.suppress(OSError):
        os.close(fd)


def take_for_run(attempt: Callable[[], Optional[int]], path: str, folder: str) -> Optional[int]:
    """Locks a folder for a run, by an attempt that returns the locked file, open, or None.

    Where somebody starts this task again, the run before it may be one of a machine that was lost, whose lock takes its
    time to go: it is waited for. Where the file system has no locks, nobody is kept out.
    """
    seconds = _LOST_SECONDS if RETRYABLE in os.environ else 0.0
    began, is_told = time.monotonic(), False
    try:
        while (fd := attempt()) is None and time.monotonic() - began < seconds:
            if not is_told:
                logger.info(f"waiting at most {seconds:g} s for the run that has locked {path}")
                is_told = True
            time.sleep(_LOST_POLL_SECONDS)
        if fd is not None and try_lock(fd) is None:
            logger.warning(f"the file system of {path} has no locks: see that no other run uses {folder}")
    except OSError as error:
        found = PipelineError(
            f"{path} cannot be locked: {error.strerror or error}",
            expected="a file system that keeps locks, or says that it has none",
            todo="run the same again; if it stays so, see the mount, and its server",
        )
        found.retryable = True
        raise found from error
    return fd


def if_lost(path: str) -> str:
    """Returns what to do about a lock that nobody holds."""
    return f"the lock of a machine that was lost stays on NFS 3: then remove {path}"


def in_use(database: str) -> PipelineError:
    """Returns the error of a database of SQLite's that another process has locked."""
    return PipelineError(
        f"{database} is locked: another process uses it",
        expected="a database that no other program keeps locked while a pipeline runs",
        todo="end that program (`fuser` names it), or wait for it; then run the same again",
    )
