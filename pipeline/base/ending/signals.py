"""SIGINT, SIGTERM and SIGHUP: an error in the main thread unwinds the stack, so that what runs is ended in order."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Optional

from tfx_estimator.pipeline.base.ending import shared_status

# The last is that of a closed terminal: `nohup` has it ignored.
_CLOSED = (signal.SIGHUP,) if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else ()
NUMBERS = (signal.SIGINT, signal.SIGTERM, *_CLOSED)
_handled = False
_held = False
_received: Optional[int] = None
_waiting: Optional[int] = None


class SignalledError(BaseException):
    """A signal ended the run; no Exception, so that nobody takes it for an error that can be borne."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_code(self) -> int:
        """As shells have it."""
        return 128 + self.number

    def __str__(self) -> str:
        what = "interrupted" if self.number == signal.SIGINT else f"ended by {signal.Signals(self.number).name}"
        place = shared_status.place()
        return (
            f"{what} {place}; the next run goes on from there, and takes what was done from the cache"
            if place
            else what
        )


@contextlib.contextmanager
def handled() -> Iterator[None]:
    """Makes the first signal raise SignalledError; the second ends the process at once.

    Outside of the main thread nothing is done: Python hands signals to the main thread alone.
    """
    global _handled, _received
    if _handled or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _end) for number in NUMBERS}
    _handled, _received = True, None
    try:
        yield
    finally:
        _handled, _received = False, None
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def ignored() -> Iterator[None]:
    """Lets no signal but SIGKILL end what is done in a moment. Outside of the main thread nothing is done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in NUMBERS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Has the first signal wait for the end of the context, where it raises; the second ends the process at once.

    For what must not be left halfway, and takes no time to speak of. What the context raised is then but the error's
    context. Outside of the main thread nothing is done.
    """
    global _held, _waiting
    if _held or threading.current_thread() is not threading.main_thread():
        yield
        return
    _held, _waiting = True, None
    try:
        yield
    finally:
        _held = False
        if _waiting is not None:
            raise SignalledError(_waiting)


def received() -> Optional[int]:
    """The signal that there was in the context; what goes wrong after it is but its consequence."""
    return _received


def note(number: int) -> None:
    """Takes note of a signal that another handler got."""
    global _received
    shared_status.heard(number)
    if _handled:
        _received = _received or number


def _end(number: int, frame: Optional[FrameType]) -> None:
    global _waiting
    again = _received is not None
    note(number)
    if again:
        os._exit(128 + number)
    if _held:
        _waiting = number
        return
    raise SignalledError(number)
