"""Signals wait for work that must not be interrupted."""

from __future__ import annotations

import signal

from tests.root import start_python

# Prints two lines: one when a signal may come, one when the protected work is complete.
HOLDS = """
import os, sys, time
from tfx_estimator.pipeline.base.ending import signals
with signals.handled():
    try:
        with signals.held():
            print("begun", flush=True)
            until = time.monotonic() + float(sys.argv[1])
            while time.monotonic() < until:
                time.sleep(0.01)
            print("whole", flush=True)
            if sys.argv[2:]:
                raise OSError(sys.argv[2])
        print("nothing came", flush=True)
    except signals.SignalledError as error:
        print(type(error.__context__).__name__, flush=True)
        sys.exit(error.exit_code)
"""


def _held(seconds: float, *numbers: int, more: str = "") -> tuple[int, list[str]]:
    """Returns the exit code and the printed lines."""
    process = start_python("-c", HOLDS, str(seconds), *filter(None, [more]))
    lines = [process.stdout.readline().strip()]
    for number in numbers:
        process.send_signal(number)
    rest, _ = process.communicate(timeout=60)
    return process.returncode, [*lines, *rest.split()]


def test_a_signal_waits_and_then_raises():
    assert _held(1, signal.SIGTERM) == (143, ["begun", "whole", "NoneType"])
    # An error in between is not lost.
    assert _held(1, signal.SIGINT, more="full") == (130, ["begun", "whole", "OSError"])
    assert _held(0.05) == (0, ["begun", "whole", "nothing", "came"])


def test_a_second_signal_does_not_wait():
    code, lines = _held(600, signal.SIGTERM, signal.SIGINT)
    # The kernel decides which of the two comes second.
    assert code in (130, 143)
    assert lines == ["begun"]
