"""Versions of a model: their numbers, the names of drafts, and a comparison of folders. Standard library only."""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import IO, Protocol

_DRAFT = ".push-"
# TensorFlow Serving reads versions as signed 64-bit integers, and ignores others; the next version must be one, too.
_MOST = 2**63 - 2
# A push that has not written to its draft for this long has died.
_OLD_SECONDS = 86400.0
_CHUNK_BYTES = 1 << 20


def newest(names: Iterable[str]) -> str:
    """Returns the newest version among the names in a folder; empty if there is none."""
    numbers = (name for name in names if name.isascii() and name.isdigit() and int(name) <= _MOST)
    return max(numbers, key=int, default="")


def after(version: str) -> int:
    """Returns the number of a new version: the time in seconds, as in TFX's Pusher, or one more than the newest."""
    return max(int(time.time()), int(version or 0) + 1)


def draft_name() -> str:
    """Makes a name with the pushing process and its start: a store's folder without files has no time."""
    return f"{_DRAFT}{_place()}-{os.getpid()}-{int(time.time())}-{uuid.uuid4().hex[:8]}"


def is_draft(name: str) -> bool:
    """Returns True for the name of a draft."""
    return name.startswith(_DRAFT)


def is_dead(draft: str, written: float) -> bool:
    """Returns True if the push of a draft has died, where locks do not work.

    Args:
        written: `time.time()` of the last write to it; 0 without files.
    """
    place, pid, started, *_ = [*draft.removeprefix(_DRAFT).split("-"), "", ""]
    died = place == _place() and pid.isdigit() and not os.path.exists(f"/proc/{pid}")
    return died or time.time() - max(written, float(started) if started.isdecimal() else 0.0) > _OLD_SECONDS


def _place() -> str:
    """Returns an id of the scope of process ids: this boot of the machine, or this container."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            place = file.read() + os.readlink("/proc/self/ns/pid")
    except OSError:
        place = uuid.uuid4().hex  # unique, so that only the age counts
    return hashlib.sha256(place.encode()).hexdigest()[:12]


class Tree(Protocol):
    """A folder of files, on this machine or elsewhere."""

    folder: str

    def sizes(self) -> dict[str, int]:
        """Returns the bytes of each file, by its path in the folder."""

    def folders(self) -> list[str]:
        """Returns its subfolders, parents first."""

    def open(self, name: str) -> IO[bytes]:
        """Opens a file for reading."""


class LocalTree:
    """A local folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def sizes(self) -> dict[str, int]:
        """Returns the bytes of each file, by its path in the folder."""
        return {
            os.path.relpath(path, self.folder): os.path.getsize(path)
            for top, _, names in os.walk(self.folder, followlinks=True)
            for path in (os.path.join(top, name) for name in names)
        }

    def folders(self) -> list[str]:
        """Returns its subfolders, parents first."""
        return [
            os.path.relpath(os.path.join(top, name), self.folder)
            for top, names, _ in os.walk(self.folder, followlinks=True)
            for name in names
        ]

    def open(self, name: str) -> IO[bytes]:
        """Opens a file for reading."""
        return open(os.path.join(self.folder, name), "rb")


def chunks(file: IO[bytes]) -> Iterator[bytes]:
    """Reads a file in chunks."""
    while piece := file.read(_CHUNK_BYTES):
        yield piece


def same(one: Tree, other: Tree) -> bool:
    """Returns True if two folders hold the same files, byte for byte."""
    sizes = one.sizes()
    return sizes == other.sizes() and all(_same_file(one, other, name) for name in sizes)


def _same_file(one: Tree, other: Tree, name: str) -> bool:
    with one.open(name) as ours, other.open(name) as theirs:
        return all(piece == theirs.read(len(piece)) for piece in chunks(ours))
