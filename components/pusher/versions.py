"""Numbers of versions, and names of drafts, which no model server takes for one. Standard library only."""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections.abc import Iterable

_DRAFT = ".push-"
# TensorFlow Serving reads versions as signed integers of 64 bits, and passes over others. The next version, which is
# one more, must be one of them, too.
_MOST = 2**63 - 2
# Nobody writes to a draft for so long who still pushes.
_OLD_SECONDS = 86400.0


def newest(names: Iterable[str]) -> str:
    """Returns the newest version among the names in a folder; nothing if there is none."""
    numbers = (name for name in names if name.isascii() and name.isdigit() and int(name) <= _MOST)
    return max(numbers, key=int, default="")


def after(version: str) -> int:
    """Returns the number of a new version: the time in seconds, as of TFX's Pusher, or more, so that numbers grow.

    Args:
        version: The newest; nothing if there is none.
    """
    return max(int(time.time()), int(version or 0) + 1)


def draft_name() -> str:
    """Makes a name that says which process pushes, and since when: a store's folder without files has no time."""
    return f"{_DRAFT}{_place()}-{os.getpid()}-{int(time.time())}-{uuid.uuid4().hex[:8]}"


def is_draft(name: str) -> bool:
    """Tells drafts from other names."""
    return name.startswith(_DRAFT)


def is_over(draft: str, written: float) -> bool:
    """Tells, where nothing can be locked, whether a push has died.

    Args:
        written: `time.time()` of the last writing to it; 0 if nothing is in it, or not any more.
    """
    place, pid, begun, *_ = [*draft.removeprefix(_DRAFT).split("-"), "", ""]
    died = place == _place() and pid.isdigit() and not os.path.exists(f"/proc/{pid}")
    return died or time.time() - max(written, float(begun) if begun.isdecimal() else 0.0) > _OLD_SECONDS


def _place() -> str:
    """Where process ids are unique: this machine, as long as it is up, or this container of it."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            place = file.read() + os.readlink("/proc/self/ns/pid")
    except OSError:
        place = uuid.uuid4().hex  # nobody else's, so that only age tells
    return hashlib.sha256(place.encode()).hexdigest()[:12]
