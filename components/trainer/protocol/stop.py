"""How the supervisor asks tasks to stop, and how a task says why it did."""

from __future__ import annotations

import contextlib
import os
from typing import Optional

# sysexits.h's EX_TEMPFAIL: the exit code of a task that stopped by request, at a checkpoint.
STOPPED = 75
_OVER = "over"


class StoppedByRequestError(Exception):
    """Training stopped at the step that the supervisor asked for, and the checkpoint is written."""


class PeerLostError(Exception):
    """A task of the same cluster has gone; all are restarted."""


def ask_to_stop(path: str, step: int, over: bool = False) -> None:
    """Tells all tasks to stop at a global step. The first word counts: tasks may have several supervisors.

    Args:
        path: `TaskSpec.stop_file`.
        step: After which a checkpoint is written and training ends.
        over: Is training then over, and not to go on in the next run.
    """
    draft = f"{path}.{os.getpid()}"
    with open(draft, "w", encoding="utf-8") as file:
        file.write(f"{step} {_OVER}" if over else str(step))
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        os.replace(draft, path)
    with contextlib.suppress(FileNotFoundError):
        os.remove(draft)


def asked_to_stop(path: str) -> Optional[int]:
    """The step to stop at; None as long as nobody asked."""
    words = _read(path)
    return int(words[0]) if words else None


def is_over(path: str) -> bool:
    """Tells whether training is over at the step to stop at."""
    return _OVER in _read(path)


def _read(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().split()
    except FileNotFoundError:
        return []
