"""Waits for what other threads and processes do."""

from __future__ import annotations

from collections.abc import Callable

# By themselves: the fixture `clock` stops the one that others see.
from time import monotonic, sleep
from typing import TypeVar, Union

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T], what: Union[str, Callable[[], str]], seconds: float = 60.0, every: float = 0.02
) -> T:
    """Returns the first true value of a condition; one that can come true no more raises by itself.

    Args:
        what: Is waited for, as a test that fails is to say it; or what says so then.
        every: Seconds between two questions.

    Raises:
        AssertionError: It stayed false.
    """
    __tracebackhide__ = True
    deadline = monotonic() + seconds
    while not (found := condition()):
        if monotonic() >= deadline:
            raise AssertionError(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")
        sleep(every)
    return found
