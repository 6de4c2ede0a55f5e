"""The whole command line in a process that stops itself when the Pusher begins: see tests/faults/forks.py."""

from __future__ import annotations

import os
import threading

# All that a run imports, once.
from tests.faults.file_operations import stop_here
from tfx_estimator.__main__ import main
from tfx_estimator.components.pusher.executor import Executor
from tfx_estimator.pipeline.run import console, results  # noqa: F401
from tfx_estimator.pipeline.runners import local  # noqa: F401

_push = Executor.Do


def run(arguments: list[str], stop: bool = False) -> int:
    """Runs `tfx-estimator run`.

    Args:
        arguments: After the verb.
        stop: Whether to stop when the Pusher begins.

    Returns:
        The exit code.
    """
    assert threading.active_count() == 1
    os.environ["COLUMNS"] = "200"

    def push(self, *args, **options):
        stop_here(stop)
        return _push(self, *args, **options)

    Executor.Do = push
    return main(["run", *arguments])
