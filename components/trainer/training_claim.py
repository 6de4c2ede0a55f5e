"""A claim of a training folder: two jobs of one pipeline, run at once, would write the same checkpoints.

On a service nobody else keeps them apart, and an object store has no locks: the claim is a file that is written anew
while its job lives. One that is not was left by a job that was killed, and is taken over.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any, Optional

from tfx.dsl.io import fileio

from tfx_estimator.components.files import write_whole
from tfx_estimator.pipeline.errors import TrainingError
from tfx_estimator.pipeline.log import get_logger

_ENDING = ".claim"
BEAT_SECONDS = 15.0
# How long a claim may stay as it is before it counts as left behind.
PATIENCE_SECONDS = 60.0

logger = get_logger("trainer")


@contextlib.contextmanager
def claimed(folder: str, beat: float = BEAT_SECONDS, patience: float = PATIENCE_SECONDS) -> Iterator[None]:
    """Claims a folder for the context.

    Args:
        folder: The training folder, which need not be there.
        beat: Seconds between two signs of life.
        patience: Seconds to wait for one of somebody else's; at least two beats.

    Raises:
        TrainingError: A living job has it.
    """
    path = folder.rstrip("/") + _ENDING
    _wait(path, folder, patience)
    mine = {"owner": uuid.uuid4().hex, "host": socket.gethostname(), "pid": os.getpid(), "beat": 0}
    fileio.makedirs(os.path.dirname(path))
    _write(path, mine)
    ended = threading.Event()
    beats = threading.Thread(target=_beat, args=(path, mine, ended, beat), name="training-claim", daemon=True)
    beats.start()
    try:
        yield
    finally:
        ended.set()
        beats.join()
        with contextlib.suppress(Exception):  # a store that is away: it will look left behind
            if (_read(path) or {}).get("owner") == mine["owner"]:
                fileio.remove(path)


def _wait(path: str, folder: str, patience: float) -> None:
    """Waits until a claim that is there is gone, or shows that its job lives, or that it does not."""
    first, deadline = _read(path), time.monotonic() + patience
    if first is None or _is_dead(first):
        return
    logger.info(f"another job has claimed {folder}: waiting {patience:g} s for a sign of life of it")
    while time.monotonic() < deadline:
        time.sleep(min(1.0, patience / 10))
        if (now := _read(path)) is None:
            return
        if now != first:
            raise TrainingError(
                f"another job trains in {folder}, on {now['host']}",
                expected="one job of a pipeline at a time: they would write the same checkpoints",
                todo="wait for it, or cancel it; or compile with another name or trainer.seed",
            )


def _is_dead(claim: dict[str, Any]) -> bool:
    """Is it of a process of this machine, that has ended; one in another container has another host name."""
    if claim["host"] != socket.gethostname():
        return False
    return claim["pid"] == os.getpid() or not os.path.exists(f"/proc/{claim['pid']}")


def _beat(path: str, mine: dict[str, Any], ended: threading.Event, seconds: float) -> None:
    while not ended.wait(seconds):
        mine["beat"] += 1
        try:
            _write(path, mine)
        except Exception as error:  # file systems have errors of their own; the next beat may come through
            logger.info(f"the claim {path} cannot be written: {error}")


def _write(path: str, claim: dict[str, Any]) -> None:
    write_whole(path, json.dumps(claim))


def _read(path: str) -> Optional[dict[str, Any]]:
    if not fileio.exists(path):
        return None
    try:
        with fileio.open(path) as file:
            return json.loads(file.read())
    except Exception:  # it has gone meanwhile, or is being written
        return None
