"""Processes that end with what started them, and all that they started with them.

A process of Linux that loses its parent belongs to init from then on, or to the nearest process above it that has asked
for it: so a daemon (two forks and a session of its own) is found whatever it did. Standard library only: training tasks
start with it.

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
# An exit code, and a time of the clock that processes share.
_TOLD = struct.Struct("=id")
_LATE = b"the work of this process is done, and it did not come to its end: it was ended\n"


def die_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Has the kernel send this process a signal when its parent dies, of SIGKILL too; if it has, this process ends."""
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def dying_with_this(words: Sequence[str]) -> list[str]:
    """Returns a command that becomes another one, which the kernel kills when this process dies."""
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), str(os.getpid()), *words]


def adopt() -> None:
    """Makes this process the parent of all orphans below it."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def empty(seconds: float = _EMPTY_SECONDS) -> None:
    """Kills all children of this process, and theirs, which it has adopted; the kernel may hold one for longer."""
    deadline = time.monotonic() + seconds
    while children := _children():
        for child in children:
            # Nobody but this process reaps it: the number is still its own.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if time.monotonic() > deadline:
            return
        time.sleep(0.005)


def keep(parent: int) -> Callable[[int, float], None]:
    """Goes on in a child; this process stays as its keeper, and never returns.

    The keeper ends with the child, by the same code or signal; or kills it, at SIGTERM or when its own parent dies.
    Either way nothing that the child started is left then.

    Returns:
        Says that the work is done: the exit code, and the seconds for the child's end. A child that takes longer, in
        native code that Python cannot interrupt, is killed, and the keeper ends by that code.
    """
    watched = {signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    die_with(parent, signal.SIGTERM)
    adopt()
    me, told = os.getpid(), mmap.mmap(-1, _TOLD.size)
    child = os.fork()
    if child:
        status = _wait_for(child, told, watched)
        empty()
        end_like(status)
    die_with(me)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def work_is_done(code: int, seconds: float) -> None:
        _TOLD.pack_into(told, 0, code, time.monotonic() + seconds)
        os.kill(me, signal.SIGUSR1)

    return work_is_done


def _wait_for(child: int, told: mmap.mmap, watched: Collection[int]) -> int:
    """Returns how the keeper is to end: like its child, or as it was told, or as one that is killed."""
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
            # Anybody may send it: nothing has been told then.
            code, deadline = _TOLD.unpack_from(told)
        elif (status := reap(child)) is not None:
            return status


def next_signal(numbers: Collection[int], seconds: float | None) -> int | None:
    """Takes the next of some blocked signals: its number, None if there was none in time; None waits for ever."""
    found = signal.sigwaitinfo(numbers) if seconds is None else signal.sigtimedwait(numbers, seconds)
    # After a stop (Ctrl-Z) beyond the deadline, Python 3.10 returns what nobody has filled.
    return found.si_signo if found and found.si_signo in numbers else None


def end_like(status: int) -> NoReturn:
    """Ends this process as another one ended, as `os.waitpid` tells of it."""
    if not os.WIFSIGNALED(status):
        os._exit(os.waitstatus_to_exitcode(status))
    number = os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the other's core tells more
    with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(128 + number)


def reap(child: int) -> int | None:
    """Reaps all children that have ended; returns the status of this one, if it has."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                found = ended[1]
    return found


def _children() -> list[int]:
    """Ids of the children of this process, zombies too."""
    me, found = str(os.getpid()), []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                # pid (a name, which may hold anything) state parent ...
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
