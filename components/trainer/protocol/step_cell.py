"""A global step in a file that processes of one machine share."""

from __future__ import annotations

import mmap
import os
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
        self._file: Optional[int] = None
        self._map: Optional[mmap.mmap] = None

    def set(self, step: int) -> None:
        """Keeps a step."""
        if self._map is not None:
            _STEP.pack_into(self._map, 0, step)
        elif self._file is not None:
            os.pwrite(self._file, _STEP.pack(step), 0)
        else:
            self._begin(step)

    def _begin(self, step: int) -> None:
        with open(self._path, "w+b") as file:
            file.write(_STEP.pack(step))
            file.flush()
            try:
                self._map = mmap.mmap(file.fileno(), _STEP.size)
            except (OSError, ValueError):
                # Some file systems (FUSE, 9p) cannot share memory. There each step is written.
                self._file = os.dup(file.fileno())

    def get(self) -> int:
        """Returns the step that was set last; -1 before the first."""
        try:
            with open(self._path, "rb") as file:
                text = file.read(_STEP.size)
        except FileNotFoundError:
            return -1
        return int(_STEP.unpack(text)[0]) if len(text) == _STEP.size else -1
