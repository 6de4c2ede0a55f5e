"""A lock of a folder of this machine: two runs of one pipeline, begun at once, would write the same checkpoints.

It ends with the process that has it, however that ends. Its tasks do not inherit it: they end with it as well, see
`pipeline.ending.keeper`.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from typing import Any, Optional

from tfx_estimator.components.trainer.claim_file import process
from tfx_estimator.pipeline import lock
from tfx_estimator.pipeline.errors import TrainingError

# Beside a folder: how its lock is called.
ENDING = ".lock"
# Until whoever has just taken it has said who he is.
_TRIES, _POLL_SECONDS = 20, 0.05


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Keeps other runs out of a folder for the context, as `lock.take_for_run` does.

    Args:
        folder: The folder, which need not be there.

    Raises:
        TrainingError: Another run has it.
        PipelineError: The lock cannot be had.
    """
    path = folder.rstrip("/") + ENDING
    fd = lock.take_for_run(lambda: _take(path), path, folder)
    if fd is None:
        raise _taken(folder, path, _read(path))
    try:
        with contextlib.suppress(OSError):  # a full disk, say: others are told less
            os.ftruncate(fd, 0)
            os.write(fd, json.dumps({**process(), "since": time.time()}).encode())
        yield
    finally:
        lock.give_back(path, fd)


def _take(path: str) -> Optional[int]:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    for _ in range(_TRIES):
        if (fd := lock.take(path)) is not None:
            return fd
        if _read(path):
            break
        time.sleep(_POLL_SECONDS)
    return None


def _read(path: str) -> Optional[dict[str, Any]]:
    """Who has it, as far as he has said so."""
    with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
        return dict(json.load(file))
    return None


def _taken(folder: str, path: str, holder: Optional[dict[str, Any]]) -> TrainingError:
    who, end = "", "end it"
    if holder:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder["since"]))
        who = f": process {holder['pid']} on {holder['host']}, since {since}"
        # Elsewhere, or in another container, the number is another process's.
        if all(holder.get(name) == value for name, value in process().items() if name != "pid"):
            end = f"end it (kill {holder['pid']})"
    error = TrainingError(
        f"another run is at work in {folder}{who}",
        expected="one run of a pipeline at a time: they would write the same checkpoints",
        todo=f"wait for it, or {end} and run this again, which goes on from its last checkpoint; or name another "
        f"pipeline_root; {lock.if_lost(path)}",
    )
    error.retryable = True
    return error
