"""A folder of files, to be compared with another. Standard library only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO, Protocol

_CHUNK_BYTES = 1 << 20


class Tree(Protocol):
    """A folder of files, on this machine or elsewhere."""

    folder: str

    def sizes(self) -> dict[str, int]:
        """Returns the bytes of each file, by its path in the folder."""

    def folders(self) -> list[str]:
        """Returns the folders in it, those above before those below."""

    def open(self, name: str) -> IO[bytes]:
        """Opens a file for reading."""


class LocalTree:
    """A folder of this machine."""

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
        """Returns the folders in it, those above before those below."""
        return [
            os.path.relpath(os.path.join(top, name), self.folder)
            for top, names, _ in os.walk(self.folder, followlinks=True)
            for name in names
        ]

    def open(self, name: str) -> IO[bytes]:
        """Opens a file for reading."""
        return open(os.path.join(self.folder, name), "rb")


def chunks(file: IO[bytes]) -> Iterator[bytes]:
    """Reads a file, piece by piece."""
    while piece := file.read(_CHUNK_BYTES):
        yield piece


def same(one: Tree, other: Tree) -> bool:
    """Tells whether two folders hold the same files, byte for byte."""
    sizes = one.sizes()
    return sizes == other.sizes() and all(_same_file(one, other, name) for name in sizes)


def _same_file(one: Tree, other: Tree, name: str) -> bool:
    with one.open(name) as ours, other.open(name) as theirs:
        return all(piece == theirs.read(len(piece)) for piece in chunks(ours))
