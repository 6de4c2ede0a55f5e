"""Processes that end with the process that started them, together with all of their children.

On Linux, init or the nearest ancestor that is a child subreaper adopts an orphan: a subreaper thus finds every daemon
(two forks and its own session). Standard library only: training tasks start with it.

python -I keeper.py PARENT COMMAND…

Source: PR_SET_CHILD_SUBREAPER and PR_SET_PDEATHSIG of prctl(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import resource
import signal
import struct
import sys
import time
from collections.abc import Callable, Collection, Sequence
from typing import NoReturn

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_EMPTY_SECONDS = 5.0
# An exit code, and a deadline by the monotonic clock, which processes share.
_DONE = struct.Struct("=id")
_LATE = b"the work of this process is done, and it did not end itself: it was killed\n"


def die_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Makes the kernel send this process a signal when its parent dies; ends it at once if the parent is dead."""
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def dying_with_this(words: Sequence[str]) -> list[str]:
    """Returns a command that executes another one, which the kernel kills when this process dies."""
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), str(os.getpid()), *words]


def adopt() -> None:
    """Makes this process the parent of all its orphaned descendants."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def empty(seconds: float = _EMPTY_SECONDS) -> None:
    """Kills all children and adopted descendants of this process; one in the kernel may take longer to end."""
    deadline = time.monotonic() + seconds
    while children := _children():
        for child in children:
            # Only this process reaps it, so its pid is not reused.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if time.monotonic() > deadline:
            return
        time.sleep(0.005)


def keep(parent: int) -> Callable[[int, float], None]:
    """Forks: returns in the child only; this process becomes its keeper.

    The keeper ends with the child, with the same exit code or signal; or kills it, at SIGTERM or when its own parent
    dies. Either way all descendants of the child are killed.

    Returns:
        A function that reports the end of the work, with the exit code and a grace period in seconds. A child that
        takes longer, in native code that Python cannot interrupt, is killed, and the keeper ends with that code.
    """
    watched = {signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    die_with(parent, signal.SIGTERM)
    adopt()
    me, done = os.getpid(), mmap.mmap(-1, _DONE.size)
    child = os.fork()
    if child:
        status = _wait_for(child, done, watched)
        empty()
        end_like(status)
    die_with(me)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def work_is_done(code: int, seconds: float) -> None:
        _DONE.pack_into(done, 0, code, time.monotonic() + seconds)
        os.kill(me, signal.SIGUSR1)

    return work_is_done


def _wait_for(child: int, done: mmap.mmap, watched: Collection[int]) -> int:
    """Returns the keeper's wait status: its child's, the reported one, or SIGKILL."""
    code, deadline = 0, 0.0
    while True:
        number = next_signal(watched, max(deadline - time.monotonic(), 0.0) if deadline else None)
        if number is None:
            with contextlib.suppress(OSError):
                os.write(1, _LATE)
            return code << 8
        if number == signal.SIGTERM:
            return signal.SIGKILL
        if number == signal.SIGUSR1:
            # Another process may have sent it: `done` is then zero.
            code, deadline = _DONE.unpack_from(done)
        elif (status := reap(child)) is not None:
            return status


def next_signal(numbers: Collection[int], seconds: float | None) -> int | None:
    """Returns the next of some blocked signals; None after a timeout. `seconds` None waits forever."""
    found = signal.sigwaitinfo(numbers) if seconds is None else signal.sigtimedwait(numbers, seconds)
    # After a stop (Ctrl-Z) beyond the deadline, Python 3.10 returns an uninitialized structure.
    return found.si_signo if found and found.si_signo in numbers else None


def end_like(status: int) -> NoReturn:
    """Ends this process with the wait status of another one."""
    if not os.WIFSIGNALED(status):
        os._exit(os.waitstatus_to_exitcode(status))
    number = os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the other's core dump is the useful one
    with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(128 + number)


def reap(child: int) -> int | None:
    """Reaps all ended children; returns the status of the given one if it is among them."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                found = ended[1]
    return found


def _children() -> list[int]:
    """Returns the pids of this process's children, including zombies."""
    me, found = str(os.getpid()), []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                # pid (name, with any characters) state parent ...
                if file.read().rpartition(")")[2].split()[1] == me:
                    found.append(int(name))
    return found


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")


if __name__ == "__main__":
    die_with(int(sys.argv[1]))
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        sys.exit(f"{sys.argv[2]} cannot be started: {error.strerror}")
