"""What a claim of a training folder says: which process has it, and whether that is alive; and how it is read."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from typing import Any, Optional

import tensorflow as tf
from tfx.dsl.io import fileio

from tfx_estimator.components.files import RETRY_SECONDS
from tfx_estimator.pipeline.errors import PipelineError, StoppedError, TrainingError

# Beside a training folder: how a claim of it is called.
ENDING = ".claim"


def process() -> dict[str, Any]:
    """Names this process: its number tells something only in its namespace, of this start of its machine."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        space = f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
        return {"host": socket.gethostname(), "space": space, "pid": os.getpid()}
    return {"host": socket.gethostname(), "space": "", "pid": os.getpid()}


def taken(folder: str, claim: Optional[dict[str, Any]]) -> TrainingError:
    """Returns the error of whoever came later.

    Args:
        folder: The training folder.
        claim: Of the other job, if it is known.
    """
    return TrainingError(
        f"another job trains in {folder}{_where(claim, ', ')}",
        expected="one job of a pipeline at a time: they would write the same checkpoints",
        todo="wait for it, or cancel it; or compile with another name or trainer.seed",
    )


def lost(folder: str, claim: Optional[dict[str, Any]]) -> StoppedError:
    """Returns the error of a job that gave no sign of life.

    Args:
        folder: The training folder.
        claim: Of the other job, if it is known.
    """
    return StoppedError(
        f"another job{_where(claim)} has taken over {folder}: this one gave no sign of life for a while",
        expected="one job of a pipeline at a time: they would write the same files",
        todo="wait for the other; then run this one again, if it is still wanted",
    )


def _where(claim: Optional[dict[str, Any]], before: str = " ") -> str:
    return f"{before}on {claim['host']}" if claim and "host" in claim else ""


def is_dead(claim: dict[str, Any]) -> bool:
    """Is it of a process that has ended, for all that can be seen from here."""
    me = process()
    if not me["space"] or claim.get("space") != me["space"]:
        return False
    return claim["pid"] == me["pid"] or not os.path.exists(f"/proc/{claim['pid']}")


def read_claim(path: str) -> Optional[dict[str, Any]]:
    """Reads it; None if there is none.

    Raises:
        PipelineError: It is there, perhaps, and cannot be read.
    """
    for seconds in (*RETRY_SECONDS, None):
        try:
            if not fileio.exists(path):
                return None
            with fileio.open(path) as file:
                return dict(json.loads(file.read()))
        except (fileio.NotFoundError, tf.errors.NotFoundError, FileNotFoundError):
            return None
        except Exception as error:  # the store is away, or the file is being written
            if seconds is None:
                raise PipelineError(
                    f"{path} cannot be read: {getattr(error, 'message', error)}",
                    expected="the claim of a job, which keeps others out of the folder beside it",
                    todo="see that this account may read it; remove it if it is damaged and no such job runs",
                ) from error
            time.sleep(seconds)
    return None
