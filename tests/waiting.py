"""Waits for conditions that other threads or processes fulfil."""

from __future__ import annotations

from collections.abc import Callable

# Imported by name, because the fixture `clock` replaces `time.monotonic`.
from time import monotonic, sleep
from typing import TypeVar, Union

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T], what: Union[str, Callable[[], str]], seconds: float = 60.0, every: float = 0.02
) -> T:
    """Returns the first true value of a condition, which may raise if it cannot become true.

    Args:
        what: Description for the error message, or a function that returns it.
        every: Seconds between two checks.

    Raises:
        AssertionError: The condition stayed false.
    """
    __tracebackhide__ = True
    deadline = monotonic() + seconds
    while not (found := condition()):
        if monotonic() >= deadline:
            raise AssertionError(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")
        sleep(every)
    return found
