"""Stack dumps of processes that crash, call `os._exit` or hang, for the process that waits for them."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

from tfx_estimator.pipeline.base.ending import signals
from tfx_estimator.pipeline.user_source.frames import is_users

_FRAME = re.compile(r'^\s*File "(.+)", line (\d+),? in (.+)$', re.MULTILINE)
_SHOWN = 3
# Requests a stack dump; no other use of this signal is known.
_DUMP = signal.SIGRTMIN + 9
_ANSWER_SECONDS = 1.0


def note_ends(path: str) -> Callable[[], None]:
    """Writes the stack to a file when a crash, or `os._exit`, ends this process.

    Returns:
        A function that turns this off, for the regular end of the process.
    """
    file = open(path, "w", encoding="utf-8")  # noqa: SIM115  # open until the process ends
    faulthandler.enable(file, all_threads=False)
    me, leave = os.getpid(), os._exit

    def noting(status: int) -> NoReturn:
        if os.getpid() == me and signals.received() is None:
            # A full disk must not keep the process from ending.
            with contextlib.suppress(OSError):
                traceback.print_stack(sys._getframe(1), file=file)
                file.flush()
        leave(status)

    def work_is_done() -> None:
        # Removes the stack of a crashed child of the user's code, which does not concern this process.
        faulthandler.disable()
        file.seek(0)
        file.truncate()
        os._exit = leave

    os._exit = noting
    return work_is_done


def note_stacks(path: str) -> None:
    """Makes this process write the stack of its main thread when `read_stack_now` requests it.

    By a signal, and not periodically by a thread of faulthandler, which reads frames while they change: on Python 3.13
    that crashes sometimes (python/cpython#140815).
    """
    file = open(path, "w", encoding="utf-8")  # noqa: SIM115  # open until the process ends
    faulthandler.register(_DUMP, file, all_threads=False)
    print(os.getpid(), file=file, flush=True)


def read_stack_now(path: str) -> list[str]:
    """As `read_users_frames`, of a dump requested from the process that called `note_stacks`, even with a held GIL."""
    with contextlib.suppress(OSError, ValueError):
        with open(path, encoding="utf-8") as file:
            pid = int(file.readline())
        size, deadline = os.path.getsize(path), time.monotonic() + _ANSWER_SECONDS
        os.kill(pid, _DUMP)
        while os.path.getsize(path) == size and time.monotonic() < deadline:
            time.sleep(0.01)
        while (now := os.path.getsize(path)) != size:  # still writing
            size = now
            time.sleep(0.02)
    return read_users_frames(path)


def read_users_frames(path: str, without: str = "") -> list[str]:
    """Returns the user's frames of the last stack in a file, as Python prints them, innermost last.

    `without` is excluded: the script that started the process.
    """
    text = ""
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        text = file.read().rpartition("Stack (")[2]
    started = os.path.realpath(without)
    frames = [frame for frame in _FRAME.findall(text) if is_users(frame[0]) and os.path.realpath(frame[0]) != started]
    # faulthandler prints the innermost frame first.
    frames = frames[::-1] if "most recent call first" in text else frames
    return [f'  File "{file}", line {line}, in {name}' for file, line, name in frames[-_SHOWN:]]
