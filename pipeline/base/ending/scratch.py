"""A folder for the temporary files of one run: TensorFlow, Beam and TFX leave many behind when they are killed.

It lies in a shared folder of the user, and is locked as long as its run lives: an unlocked one is left from a killed
run, and the next run removes it. The folders themselves are locked, so that systemd-tmpfiles does not remove them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from typing import Optional

from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.base.files import write_whole

# The Trainer's note of its training folder; empty once that is published.
TRAINING_FOLDER = "training_folder"
# Inherited by all processes of a run.
_VARIABLE = "TFX_ESTIMATOR_TEMPORARY"


class Scratch:
    """The locked folder of one run; raises PipelineError if temporary files cannot be written."""

    def __init__(self) -> None:
        home = shared()
        try:
            with _lock_home(home):
                _sweep(home)
                # Short, because a socket's path may have 107 characters.
                self.path = tempfile.mkdtemp(prefix="", dir=home)
                self._lock = os.open(self.path, os.O_RDONLY)
                _try_lock(self._lock)
        except OSError as error:
            raise _no_place(error) from error

    def use(self) -> None:
        """Makes it the temporary folder of this process and its children."""
        _use(self.path)

    def leave(self) -> None:
        """Closes the lock in a child of the process that holds it."""
        os.close(self._lock)

    def hand_on(self) -> None:
        """Keeps the lock across `exec`, until the new program ends."""
        os.set_inheritable(self._lock, True)

    def remove(self) -> None:
        """Removes the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
        _leave_home(os.path.dirname(self.path))


@contextlib.contextmanager
def made() -> Iterator[str]:
    """Makes a folder for the context, or yields that of this process's run."""
    if run := of_this_run():
        yield run
        return
    scratch = Scratch()
    try:
        yield scratch.path
    finally:
        scratch.remove()


@contextlib.contextmanager
def used() -> Iterator[None]:
    """Puts the temporary files of this process and its children into a folder that is removed after the context."""
    names = ("TMPDIR", _VARIABLE)
    before, folder = {name: os.environ[name] for name in names if name in os.environ}, tempfile.tempdir
    with made() as path:
        _use(path)
        try:
            yield
        finally:
            for name in names:
                os.environ.pop(name, None)
            os.environ.update(before)
            tempfile.tempdir = folder


def made_for_next() -> str:
    """Makes a folder for the program that this process executes next; returns it.

    It is removed with the folder of this process's run; without one, by the next run after the program has ended.
    """
    if run := of_this_run():
        return tempfile.mkdtemp(dir=run)
    scratch = Scratch()
    scratch.hand_on()
    return scratch.path


def of_this_run() -> str:
    """Returns the folder of this process's run; empty if there is none."""
    folder = os.environ.get(_VARIABLE, "")
    return folder if os.path.isdir(folder) else ""


def note(name: str, text: str) -> None:
    """Writes a note for the summary of this run, if there is a run; an empty text clears it."""
    if folder := of_this_run():
        with contextlib.suppress(OSError):  # a lost note must not fail the run
            write_whole(os.path.join(folder, f"{name}.note"), text)


def noted(folder: str, name: str) -> str:
    """Returns a note's text; empty without a note."""
    try:
        with open(os.path.join(folder, f"{name}.note"), encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def variables(folder: str) -> dict[str, str]:
    """Returns the environment variables that name a run's folder to its children."""
    return {"TMPDIR": folder, _VARIABLE: folder}


def _use(folder: str) -> None:
    os.environ.update(variables(folder))
    tempfile.tempdir = folder


def shared() -> str:
    """Returns the folder that all runs of this user on this machine share; it need not exist."""
    if run := os.environ.get(_VARIABLE):
        return os.path.dirname(run)
    named = os.environ.get("TMPDIR")
    try:
        if named:
            # Python would silently take another one if this is not writable.
            named = os.path.abspath(named)
            os.rmdir(tempfile.mkdtemp(prefix=".tfx-estimator-", dir=named))
        return os.path.join(named or tempfile.gettempdir(), f"tfx-estimator-{os.getuid()}")
    except OSError as error:
        raise _no_place(error) from error


@contextlib.contextmanager
def shared_lock(name: str) -> Iterator[Callable[[], bool]]:
    """A lock between this user's processes on this machine, by the name of a file in `shared()`.

    Yields:
        A function that takes it until the end of the context, or returns False if another process has it.
    """
    home, held = shared(), []

    def take() -> bool:
        try:
            with _lock_home(home):
                lock = os.open(os.path.join(home, name), os.O_RDWR | os.O_CREAT, 0o600)
                held.append(lock) if _try_lock(lock) else os.close(lock)
        except OSError as error:
            raise _no_place(error) from error
        return bool(held)

    try:
        yield take
    finally:
        for lock in held:
            with _lock_home(home):
                os.unlink(os.path.join(home, name))
                os.close(lock)
            _leave_home(home)


@contextlib.contextmanager
def _lock_home(home: str) -> Iterator[None]:
    """Lets one process at a time create and remove entries of the folder."""
    while (lock := _open_home(home)) is None:
        pass
    try:
        yield
    finally:
        os.close(lock)


def _open_home(home: str) -> Optional[int]:
    """Returns the locked folder's descriptor; None if a run that has just ended has removed it."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(home, 0o700)
    lock = None
    try:
        held = os.lstat(home)
        if not stat.S_ISDIR(held.st_mode) or held.st_uid != os.getuid():
            raise PermissionError(errno.EPERM, "it belongs to another user", home)
        lock = os.open(home, os.O_RDONLY)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        if os.stat(home).st_ino == os.fstat(lock).st_ino:
            return lock
    except FileNotFoundError:
        if not os.path.isdir(os.path.dirname(home)):
            raise
    if lock is not None:
        os.close(lock)
    return None


def _leave_home(home: str) -> None:
    """Removes the folder if it is empty."""
    with contextlib.suppress(OSError), _lock_home(home):
        os.rmdir(home)


def _sweep(home: str) -> None:
    """Removes the files of killed runs."""
    for entry in os.scandir(home):
        try:
            # O_NONBLOCK, because opening a FIFO without a writer would block.
            lock = os.open(entry.path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:  # removed by its run just now; or no run's: a socket, a link, another user's
            continue
        try:
            if not _try_lock(lock):
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.path)
        finally:
            os.close(lock)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held; or unknown, on a file system without locks
        return False
    return True


def _no_place(error: OSError) -> PipelineError:
    named = os.environ.get("TMPDIR")
    what = f"TMPDIR is {named!r}: " if named else ""
    where = f"{error.filename}: " if error.filename and error.filename != named else ""
    return PipelineError(
        f"there is no place for temporary files: {what}{where}{error.strerror or error}",
        expected="a folder that can be written",
        todo="set TMPDIR to one: TMPDIR=/tmp, for example",
    )
