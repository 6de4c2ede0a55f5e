"""The code that was at work when a process ended without a word: it writes its stack, who waits for it reads that."""

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
# Asks for a stack: a signal that nobody else gives a meaning.
_ASKED = signal.SIGRTMIN + 9
_ANSWER_SECONDS = 1.0


def note_ends(path: str) -> Callable[[], None]:
    """Has the stack written down when a crash, or `os._exit`, ends this process.

    Returns:
        Ends this for `os._exit`: from then on anybody may end the process, as its work is done.
    """
    file = open(path, "w", encoding="utf-8")  # noqa: SIM115  # for good
    faulthandler.enable(file, all_threads=False)
    me, leave = os.getpid(), os._exit

    def noting(status: int) -> NoReturn:
        if os.getpid() == me and signals.received() is None:
            # A full disk keeps nobody from ending.
            with contextlib.suppress(OSError):
                traceback.print_stack(sys._getframe(1), file=file)
                file.flush()
        leave(status)

    def work_is_done() -> None:
        # What a child of the user's has left there, as it crashed, does not concern who waits for this process.
        faulthandler.disable()
        file.seek(0)
        file.truncate()
        os._exit = leave

    os._exit = noting
    return work_is_done


def note_stacks(path: str) -> None:
    """Has this process write down the stack of its main thread when `read_stack_now` asks for it.

    By a signal, not again and again by a thread of faulthandler's, which reads frames that are changing: on Python 3.13
    that crashes now and then (python/cpython#140815).
    """
    file = open(path, "w", encoding="utf-8")  # noqa: SIM115  # for good
    faulthandler.register(_ASKED, file, all_threads=False)
    print(os.getpid(), file=file, flush=True)


def read_stack_now(path: str) -> list[str]:
    """Asks the process that gave a path to `note_stacks` for its stack, whoever holds Python's lock there.

    Returns the user's own lines in it, as `read_users_frames`.
    """
    with contextlib.suppress(OSError, ValueError):
        with open(path, encoding="utf-8") as file:
            pid = int(file.readline())
        size, deadline = os.path.getsize(path), time.monotonic() + _ANSWER_SECONDS
        os.kill(pid, _ASKED)
        while os.path.getsize(path) == size and time.monotonic() < deadline:
            time.sleep(0.01)
        while (now := os.path.getsize(path)) != size:  # as long as it writes
            size = now
            time.sleep(0.02)
    return read_users_frames(path)


def read_users_frames(path: str, without: str = "") -> list[str]:
    """Finds the user's own lines, as Python prints them, in what was written last; the innermost last.

    `without` is nobody's code: the script that started the process.
    """
    text = ""
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        text = file.read().rpartition("Stack (")[2]
    started = os.path.realpath(without)
    frames = [frame for frame in _FRAME.findall(text) if is_users(frame[0]) and os.path.realpath(frame[0]) != started]
    # faulthandler begins with the innermost.
    frames = frames[::-1] if "most recent call first" in text else frames
    return [f'  File "{file}", line {line}, in {name}' for file, line, name in frames[-_SHOWN:]]
