"""Locks of files, which end with the process that holds them. Standard library only.

flock(2) also holds between the machines of an NFS, from Linux 2.6.12 on.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from typing import Optional

from tfx_estimator.pipeline.errors import PipelineError

_POLL_SECONDS = 0.05
# Some file systems of user space have no locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def try_lock(fd: int) -> Optional[bool]:
    """Locks an open file.

    Returns:
        Whether this process holds it now; None if the file system has no locks.
    """
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
def held(path: str, seconds: float = 120.0) -> Iterator[None]:
    """Waits until nobody else holds a file, and holds it; the file is there only as long as somebody does.

    Args:
        path: The file.
        seconds: To wait.

    Raises:
        PipelineError: Somebody held it for too long.
    """
    deadline = time.monotonic() + seconds
    while (fd := take(path)) is None:
        if time.monotonic() > deadline:
            raise PipelineError(
                f"another push has held {path} for {seconds:g} s",
                expected="pushes that take turns for moments only",
                todo="see whether one is stopped (`fuser` names the process), end it, and run this again",
            )
        time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
        os.close(fd)


def take(path: str) -> Optional[int]:
    """Locks a file, which is made if it is not there; also where the file system has no locks.

    Whoever has it removes it before it is closed.

    Returns:
        The open file; None if somebody else holds it.
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
