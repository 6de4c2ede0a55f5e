"""Runs a pipeline in a child process, and watches it.

However the run ends, the watcher reports it with an exit code, and removes its child processes and temporary files:
the OOM killer may kill the run; the user's code may call `os._exit`; a failed check may abort TensorFlow, which no
Python code can catch; or a signal may arrive while C code holds the GIL.

The fork comes before any heavy import, and takes some milliseconds. Both processes are in the terminal's process
group: Ctrl-C and Ctrl-Z reach both, and the run can read from the terminal. Training tasks are in their own sessions:
Ctrl-C is passed on to them, but Ctrl-Z does not stop them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Collection
from typing import Optional

from tfx_estimator.pipeline.base.ending import keeper, shared_status, signals
from tfx_estimator.pipeline.base.ending.scratch import Scratch
from tfx_estimator.pipeline.base.errors import PipelineError, TfxEstimatorError, UserCodeError
from tfx_estimator.pipeline.run.summary import complete
from tfx_estimator.pipeline.user_source.faults import note_ends, read_users_frames

# Grace period from a signal to SIGKILL: normally, and where the run requests more.
_SECONDS, _PATIENT_SECONDS = 1.5, 150.0
# To report how the run ended, once it requests no more time.
_REPORT_SECONDS = 10.0
# For the interpreter's exit, including `atexit` functions: normally, and after a signal.
_EXIT_SECONDS, _LEAVE_SECONDS = 60.0, 0.5
# A signal to the process group reaches the run too within this time, and is then not passed on.
_GROUP_SECONDS = 0.1
_TICK_SECONDS, _IDLE_SECONDS = 0.05, 1.0


def watched(work: Callable[[], int]) -> int:
    """Calls `work` in a forked child; returns in both processes.

    Raises:
        SignalledError: A signal ended the child before it could report that.
        TfxEstimatorError: The child ended for another reason, and could not report it.
    """
    scratch = Scratch()
    faults = os.path.join(scratch.path, "faults")
    scratch.use()
    shared_status.share()
    numbers = {*signals.NUMBERS, signal.SIGCHLD}
    # Blocked until this process ends, because a run that has ended cannot be interrupted.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    keeper.adopt()
    me = os.getpid()
    if not (child := os.fork()):
        keeper.die_with(me)
        scratch.leave()
        note_ends(faults)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return work()
    watch = _Watch(child)
    try:
        status = watch.wait(numbers)
        keeper.empty()
        if (code := shared_status.ended()) is not None:
            return code
        _show_cursor()
        number = watch.number or shared_status.last_heard()
        error = signals.SignalledError(number) if number else _explain(status, faults)
        if summary := complete(scratch.path, error):
            with contextlib.suppress(OSError):
                sys.stdout.write(json.dumps(summary, indent=2) + "\n")
                sys.stdout.flush()
        raise error
    finally:
        scratch.remove()


class _Watch:
    """State of the child process, and of the signals passed on to it."""

    def __init__(self, child: int) -> None:
        self._child = child
        self._count = 0
        self._since = 0.0
        self._first = 0.0
        self._allowed = _SECONDS
        self._done: Optional[float] = None
        self.number: Optional[int] = None

    def wait(self, numbers: Collection[int]) -> int:
        """Passes signals on until the run has ended; returns its wait status."""
        while True:
            number = keeper.next_signal(numbers, _TICK_SECONDS if self.number else _IDLE_SECONDS)
            if number and number != signal.SIGCHLD:
                self._pass_on(number)
            elif (status := keeper.reap(self._child)) is not None:
                return status
            elif self._is_late(time.monotonic()):
                os.kill(self._child, signal.SIGKILL)

    def _pass_on(self, number: int) -> None:
        time.sleep(_GROUP_SECONDS)
        # `timeout` sends the signal twice, to the process and to its group.
        while keeper.next_signal({number}, 0):
            pass
        self._count += 1
        self.number = self.number or number
        self._since = time.monotonic()
        self._first = self._first or self._since
        if shared_status.count_heard() < self._count:
            os.kill(self._child, number)

    def _is_late(self, now: float) -> bool:
        if shared_status.ended() is not None:
            self._done = self._done or now
            return now - self._done > (_LEAVE_SECONDS if self.number else _EXIT_SECONDS)
        if not self.number:
            return False
        if shared_status.is_patient() and self._count < 2 and now - self._first < _PATIENT_SECONDS:
            self._since, self._allowed = now, _REPORT_SECONDS
        return now - self._since > (_SECONDS if self._count > 1 else self._allowed)


def _explain(status: int, faults: str) -> TfxEstimatorError:
    """Returns an error that says what ended the run, as far as is known."""
    if os.WIFSIGNALED(status):
        what = f"was killed by {signal.Signals(os.WTERMSIG(status)).name}"
    else:
        what = f"ended, with exit code {os.waitstatus_to_exitcode(status)}"
    message = f"the process of the run {what}, {shared_status.place() or 'at its start'}"
    if lines := read_users_frames(faults, without=sys.argv[0]):
        return UserCodeError(
            f"{message}; your code was running:\n" + "\n".join(lines),
            expected="code that returns, or raises an error",
            todo="fix the code above",
        )
    todo = "run the same again: what was done before comes from the cache"
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        todo = f"see whether the memory was used up (`dmesg`); {todo}"
    error = PipelineError(message, expected="a run that exits normally", todo=todo)
    error.retryable = os.WIFSIGNALED(status)
    return error


def _show_cursor() -> None:
    """Shows the cursor again, which the progress line hides."""
    if sys.stdout.isatty():
        with contextlib.suppress(OSError):
            os.write(1, b"\x1b[?25h\r\n")
