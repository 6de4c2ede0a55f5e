"""Runs code in a process that has imported what a training task imports first: see tests/faults/forks.py."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Mapping, Sequence

from tfx_estimator.components.trainer.task import light_imports

light_imports.apply()

# Imported once: everything that every task needs.
import tensorflow  # noqa: E402, F401

from tfx_estimator.components.trainer.task import paths, runtime, user_code  # noqa: E402, F401


def run(
    code: str, arguments: Sequence[str] = (), path: Sequence[str] = (), environment: Mapping[str, str | None] = {}
) -> None:
    """Runs it.

    Args:
        code: What `python -c` would be given.
        path: Folders to find modules in, before all others.
        environment: Variables; those with None are unset.
    """
    for name, value in environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    sys.argv = ["-c", *arguments]
    sys.path[:0] = path
    # A fork skips atexit functions registered before it; its own ones run as at any process's end.
    atexit._clear()
    try:
        exec(compile(code, "<code>", "exec"), {"__name__": "__main__"})
    finally:
        atexit._run_exitfuncs()
