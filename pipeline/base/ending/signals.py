"""SIGINT, SIGTERM and SIGHUP: an error in the main thread unwinds the stack, so that cleanup runs."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Optional

from tfx_estimator.pipeline.base.ending import shared_status

# SIGHUP is sent by a closed terminal; `nohup` ignores it.
_CLOSED = (signal.SIGHUP,) if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else ()
NUMBERS = (signal.SIGINT, signal.SIGTERM, *_CLOSED)
_handled = False
_held = False
_received: Optional[int] = None
_waiting: Optional[int] = None


class SignalledError(BaseException):
    """A signal ended the run; not an Exception, so that no `except Exception` swallows it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_code(self) -> int:
        """The exit code by the shells' convention."""
        return 128 + self.number

    def __str__(self) -> str:
        what = "interrupted" if self.number == signal.SIGINT else f"ended by {signal.Signals(self.number).name}"
        place = shared_status.place()
        return (
            f"{what} {place}; the next run continues from there, and takes finished components from the cache"
            if place
            else what
        )


@contextlib.contextmanager
def handled() -> Iterator[None]:
    """Makes the first signal raise SignalledError; the second ends the process at once.

    It has no effect outside of the main thread, because Python handles signals in the main thread only.
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
    """Ignores the signals during a short context. It has no effect outside of the main thread."""
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
    """Defers the first signal's error to the end of the context; the second signal ends the process at once.

    For short actions that must not be interrupted. An error of the context becomes the `__context__` of the signal's.
    It has no effect outside of the main thread.
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
    """Returns the signal received in `handled`; later errors are only its consequence."""
    return _received


def note(number: int) -> None:
    """Records a signal that another handler received."""
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
