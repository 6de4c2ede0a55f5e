"""The end of a process whose work is done: its exit code, and no waiting for what the user's code has left at work.

At its end Python waits without a limit, for threads that are no daemons, for processes of `multiprocessing`, and for
functions of `atexit`. Standard library only: training tasks start with it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn, Optional

from tfx_estimator.pipeline.base.ending import signals
from tfx_estimator.pipeline.base.errors import TfxEstimatorError, exit_code_of

# Of the time for all: until what waits for a process sees that it has been killed; and as much for the functions of
# `atexit` beside threads that go on.
_SHARE = 0.25


def exit_code(work: Callable[[], Optional[int]]) -> int:
    """Does the work of a process; returns its exit code, that of an error of ours, which is printed, or of a signal."""
    try:
        return work() or 0
    except TfxEstimatorError as error:
        _print(error)
        return exit_code_of(error)
    except signals.SignalledError as end:
        _print(end)
        return end.exit_code


def _print(end: BaseException) -> None:
    # Nobody may be there to read it; the exit code says it as well.
    with contextlib.suppress(OSError):
        print(end, file=sys.stderr, flush=True)  # noqa: T201


def leave_within(seconds: float, code: int, tell: Optional[Callable[[str], None]] = None) -> None:
    """Has this process end in time once its main thread is done, as Python does where nothing is left at work.

    What still is when the time is over is named on stdout. Processes are killed then; the functions of `atexit` are
    called beside threads, in a quarter of the time.

    Args:
        seconds: For what is left to end by itself.
        tell: Is told as well, from a thread, what was not waited for.
    """
    # Of the code's own, which was not to come so late.
    signal.setitimer(signal.ITIMER_REAL, 0)
    leaving = _Leaving(seconds, code, tell)
    signal.signal(signal.SIGALRM, leaving.give_up)
    # Called first.
    atexit.register(leaving.note_hooks)
    threading.Thread(target=leaving.watch, name="leaving", daemon=True).start()


class _Leaving:
    def __init__(self, seconds: float, code: int, tell: Optional[Callable[[str], None]]) -> None:
        self._seconds, self._code, self._tell = seconds, code, tell
        self._hooks_began = False

    def note_hooks(self) -> None:
        """Python waits for no thread any more."""
        self._hooks_began = True

    def watch(self) -> None:
        """Gives up what the main thread waits for."""
        time.sleep(self._seconds)
        multiprocessing = sys.modules.get("multiprocessing")
        # Daemons `multiprocessing` ends by itself.
        children = [each for each in multiprocessing.active_children() if not each.daemon] if multiprocessing else []
        threads = [each for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()]
        left = [f"the thread {each.name!r}" for each in threads] + [f"the process {each.name!r}" for each in children]
        told = f"not waited for after {self._seconds:g} s: {', '.join(left) or 'what is called at its end'}"
        with contextlib.suppress(OSError):
            os.write(1, f"the work of this process is done; {told}\n".encode(errors="replace"))
        # Whatever becomes of it, the process ends.
        with contextlib.suppress(Exception):
            if self._tell is not None:
                self._tell(told)
        for each in children:
            each.kill()
        time.sleep(_SHARE * self._seconds if children else 0)
        # It interrupts what the main thread waits in.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
        time.sleep(_SHARE * self._seconds)
        os._exit(self._code)

    def give_up(self, number: int, frame: Optional[FrameType]) -> NoReturn:
        """Ends the process from its main thread, where `atexit` is at home."""
        if not self._hooks_began:
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(self._code)
