"""A lock of a folder of this machine: two runs of one pipeline, begun at once, would write the same checkpoints.

It ends with the process that has it, however that ends. Its tasks do not inherit it: they end with it as well, see
`pipeline.base.ending.keeper`.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from typing import Any, Optional

from tfx_estimator.pipeline.base import lock
from tfx_estimator.pipeline.base.errors import TrainingError


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Keeps other runs out of a folder, which need not be there: raises TrainingError, or as `lock.take_for_run`."""
    path = f"{folder.rstrip('/')}.lock"
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


def process() -> dict[str, Any]:
    """Names this process: its number tells something only in its namespace, of this start of its machine."""
    space = ""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        space = f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    return {"host": socket.gethostname(), "space": space, "pid": os.getpid()}


def is_here(holder: dict[str, Any]) -> bool:
    """Does the number of a process that was named so tell something here: elsewhere it may be another's."""
    space = process()["space"]
    return bool(space) and holder.get("space") == space


def _take(path: str) -> Optional[int]:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    for _ in range(20):  # until whoever has just taken it has said who he is
        if (fd := lock.take(path)) is not None or _read(path):
            return fd
        time.sleep(0.05)
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
        end += f" (kill {holder['pid']})" if is_here(holder) else ""
    error = TrainingError(
        f"another run is at work in {folder}{who}",
        expected="one run of a pipeline at a time: they would write the same checkpoints",
        todo=f"wait for it, or {end} and run this again, which goes on from its last checkpoint; or name another "
        f"pipeline_root; {lock.if_lost(path)}",
    )
    error.retryable = True
    return error
