"""The end of a process whose work is done: its exit code, and a limit on the wait for leftover threads and processes.

At exit, Python waits without limit for non-daemon threads, for processes of `multiprocessing`, and for functions of
`atexit`. Standard library only: training tasks start with it.
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

# Fractions of the grace period: after killing processes, until their waiters have noticed; and for functions of
# `atexit` while threads still run.
_SHARE = 0.25


def exit_code(work: Callable[[], Optional[int]]) -> int:
    """Runs the work of a process; prints a TfxEstimatorError or a signal; returns the exit code."""
    try:
        return work() or 0
    except TfxEstimatorError as error:
        _print(error)
        return exit_code_of(error)
    except signals.SignalledError as end:
        _print(end)
        return end.exit_code


def _print(end: BaseException) -> None:
    # stderr may be closed; the exit code has the information, too.
    with contextlib.suppress(OSError):
        print(end, file=sys.stderr, flush=True)  # noqa: T201


def leave_within(seconds: float, code: int, tell: Optional[Callable[[str], None]] = None) -> None:
    """Limits the time that this process takes to exit after its main thread is done.

    After the grace period, leftover threads and processes are named on stdout, and processes are killed; functions of
    `atexit` then have a quarter of the period, while threads still run.

    Args:
        seconds: The grace period.
        tell: Is called in a thread with the same text.
    """
    # Cancels a timer of the user's code.
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
        """Records that Python has stopped waiting for threads."""
        self._hooks_began = True

    def watch(self) -> None:
        """Interrupts the main thread's wait after the grace period."""
        time.sleep(self._seconds)
        multiprocessing = sys.modules.get("multiprocessing")
        # `multiprocessing` ends daemons itself.
        children = [each for each in multiprocessing.active_children() if not each.daemon] if multiprocessing else []
        threads = [each for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()]
        left = [f"the thread {each.name!r}" for each in threads] + [f"the process {each.name!r}" for each in children]
        text = f"not waited for after {self._seconds:g} s: {', '.join(left) or 'functions of atexit'}"
        with contextlib.suppress(OSError):
            os.write(1, f"the work of this process is done; {text}\n".encode(errors="replace"))
        # No error of it may keep the process from ending.
        with contextlib.suppress(Exception):
            if self._tell is not None:
                self._tell(text)
        for each in children:
            each.kill()
        time.sleep(_SHARE * self._seconds if children else 0)
        # Interrupts the main thread's wait.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
        time.sleep(_SHARE * self._seconds)
        os._exit(self._code)

    def give_up(self, number: int, frame: Optional[FrameType]) -> NoReturn:
        """Ends the process from its main thread, in which functions of `atexit` have to run."""
        if not self._hooks_began:
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(self._code)
