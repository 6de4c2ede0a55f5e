"""The code that was at work when a process ended without a word: it writes its stack, who waits for it reads that."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from tfx_estimator.pipeline.ending import signals
from tfx_estimator.pipeline.user_source.frames import is_users

_FRAME = re.compile(r'^\s*File "(.+)", line (\d+),? in (.+)$', re.MULTILINE)
_SHOWN = 3


def note_ends(path: str) -> Callable[[], None]:
    """Has the stack written down when a crash, or `os._exit`, ends this process.

    Args:
        path: Of a file to make.

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


def note_stacks(path: str, seconds: float) -> None:
    """Has the stacks of all threads written down again and again, whoever holds Python's lock.

    Args:
        path: Of a file to make.
        seconds: Between two of them.
    """
    file = open(path, "w", encoding="utf-8")  # noqa: SIM115  # for good
    faulthandler.dump_traceback_later(seconds, repeat=True, file=file)


def read_users_frames(path: str, without: str = "") -> list[str]:
    """Finds the user's own lines in what was written last, in the main thread if there are several.

    Args:
        path: Of the file; it need not be there.
        without: A file that is nobody's code: the script that started the process.

    Returns:
        As Python prints them, the innermost last; none if no code of the user's was at work.
    """
    text = ""
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        # The main thread is the oldest, and comes last.
        text = file.read().rpartition("Timeout (")[2].rpartition("Thread 0x")[2]
    started = os.path.realpath(without)
    frames = [frame for frame in _FRAME.findall(text) if is_users(frame[0]) and os.path.realpath(frame[0]) != started]
    # faulthandler begins with the innermost.
    frames = frames[::-1] if "most recent call first" in text else frames
    return [f'  File "{file}", line {line}, in {name}' for file, line, name in frames[-_SHOWN:]]
