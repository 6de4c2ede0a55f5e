"""A run in a process of its own, and this one, which watches it.

Whatever ends a run, somebody is left to say so, with an exit code, and to take away what it started and its temporary
files: it may be killed for its memory; the user's code may end it by `os._exit`, or TensorFlow by a failed check, which
no Python code can catch; or it may be in C code that holds Python's lock when a signal comes.

The watcher is forked off before anything heavy is imported, which takes some milliseconds. Both are in the terminal's
process group: Ctrl-C and Ctrl-Z reach both, and the run can read from the terminal. The tasks of a training are in
sessions of their own: they are told of Ctrl-C, but Ctrl-Z does not stop them.
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

# Longest time from a signal to the end of the run: normally, and where the run has asked for time.
_SECONDS, _PATIENT_SECONDS = 1.5, 150.0
# After a run has stopped asking for time, it has so long to say how it ended.
_LAST_WORDS_SECONDS = 10.0
# For the interpreter's exit, including functions of `atexit`: normally, and after a signal.
_EXIT_SECONDS, _LEAVE_SECONDS = 60.0, 0.5
# A signal to the whole group reaches the run as well: then it is not passed on.
_GROUP_SECONDS = 0.1
_TICK_SECONDS, _IDLE_SECONDS = 0.05, 1.0


def watched(work: Callable[[], int]) -> int:
    """Works in a child; returns in both processes.

    Raises:
        SignalledError: A signal ended it, and it could not say so itself.
        TfxEstimatorError: So did something else.
    """
    scratch = Scratch()
    faults = os.path.join(scratch.path, "faults")
    scratch.use()
    shared_status.share()
    heard = {*signals.NUMBERS, signal.SIGCHLD}
    # Blocked until this process ends, because a run that has ended cannot be interrupted.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, heard)
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
        status = watch.wait(heard)
        keeper.empty()
        if (code := shared_status.ended()) is not None:
            return code
        _show_cursor()
        number = watch.number or shared_status.last_heard()
        error = signals.SignalledError(number) if number else _explain(status, faults)
        if told := complete(scratch.path, error):
            with contextlib.suppress(OSError):
                sys.stdout.write(json.dumps(told, indent=2) + "\n")
                sys.stdout.flush()
        raise error
    finally:
        scratch.remove()


class _Watch:
    """What is known of the run."""

    def __init__(self, child: int) -> None:
        self._child = child
        self._count = 0
        self._since = 0.0
        self._first = 0.0
        self._allowed = _SECONDS
        self._done: Optional[float] = None
        self.number: Optional[int] = None

    def wait(self, heard: Collection[int]) -> int:
        """Passes signals on until the run has ended; returns its status."""
        while True:
            number = keeper.next_signal(heard, _TICK_SECONDS if self.number else _IDLE_SECONDS)
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
            self._since, self._allowed = now, _LAST_WORDS_SECONDS
        return now - self._since > (_SECONDS if self._count > 1 else self._allowed)


def _explain(status: int, faults: str) -> TfxEstimatorError:
    """What ended the run, as far as it can be known."""
    if os.WIFSIGNALED(status):
        what = f"was killed by {signal.Signals(os.WTERMSIG(status)).name}"
    else:
        what = f"ended, with exit code {os.waitstatus_to_exitcode(status)}"
    told = f"the process of the run {what}, {shared_status.place() or 'at its start'}"
    if lines := read_users_frames(faults, without=sys.argv[0]):
        return UserCodeError(
            f"{told}; your code was at work:\n" + "\n".join(lines),
            expected="code that returns, or raises an error",
            todo="mend the code above",
        )
    todo = "run the same again: what was done before comes from the cache"
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        todo = f"see whether the memory was used up (`dmesg`); {todo}"
    error = PipelineError(told, expected="a run that ends by itself", todo=todo)
    error.retryable = os.WIFSIGNALED(status)
    return error


def _show_cursor() -> None:
    """A moving line hides it, and had no time to show it again."""
    if sys.stdout.isatty():
        with contextlib.suppress(OSError):
            os.write(1, b"\x1b[?25h\r\n")
