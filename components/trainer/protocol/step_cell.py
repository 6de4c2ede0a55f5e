"""A global step in a file that processes of one machine share."""

from __future__ import annotations

import mmap
import struct
from typing import Optional

_STEP = struct.Struct("<q")


class StepCell:
    """A global step in a file: set without a system call, so in every step, and kept when its process is killed.

    Args:
        path: The file, on this machine; it is made by whoever sets a step first.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._map: Optional[mmap.mmap] = None

    def set(self, step: int) -> None:
        """Keeps a step.

        Args:
            step: The global step.
        """
        if self._map is None:
            with open(self._path, "w+b") as file:
                file.write(_STEP.pack(step))
                file.flush()
                self._map = mmap.mmap(file.fileno(), _STEP.size)
        _STEP.pack_into(self._map, 0, step)

    def get(self) -> int:
        """Returns the step that was set last; -1 before the first."""
        try:
            with open(self._path, "rb") as file:
                text = file.read(_STEP.size)
        except FileNotFoundError:
            return -1
        return int(_STEP.unpack(text)[0]) if len(text) == _STEP.size else -1
