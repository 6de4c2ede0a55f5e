"""Open files of the store: what TensorFlow reads, in blocks, and what it writes, by a file on this machine."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time

from tfx_estimator.pipeline.base.s3 import store
from tfx_estimator.pipeline.base.s3.store import Place

# Bytes of the first request for a file, and of the largest: each next one doubles while a file is read in order.
_FIRST, _LARGEST = 256 * 2**10, 8 * 2**20
# A file that stays open, such as TensorBoard's events, is published no more often than this.
_FLUSH_SECONDS = 10.0


class OutOfRangeError(Exception):
    """Fewer bytes were `read` than were asked for: the file ends."""

    def __init__(self, read: int) -> None:
        super().__init__(read)
        self.read = read


class Reader:
    """Reads one version of a file: a file that is replaced meanwhile ends in an error, not in a mixture."""

    def __init__(self, place: Place) -> None:
        self._place = place
        found = store.stat(place)
        if found.is_folder:
            raise store.RefusedError("IsFolder", 412, f"{place} is a folder")
        self._size, self._etag = found.size, found.etag
        self._start, self._block, self._next = 0, b"", _FIRST
        self._lock = threading.Lock()

    def read(self, start: int, size: int) -> bytes:
        """Reads bytes; fewer at the end of the file."""
        size = max(0, min(size, self._size - start))
        with self._lock:
            end = self._start + len(self._block)
            if not (self._start <= start <= end):
                self._start, self._block, self._next = start, b"", _FIRST
                end = start
            parts = [self._block[start - self._start : start - self._start + size]]
            missing = size - len(parts[0])
            if missing > 0:
                length = min(max(missing, self._next), self._size - end)
                self._start, self._block = end, store.read(self._place, end, length, self._etag)
                self._next = min(2 * self._next, _LARGEST)
                parts.append(self._block[:missing])
        return b"".join(parts)


class Writer:
    """Writes a file on this machine, which the store gets as a whole when it is closed or synchronized."""

    def __init__(self, place: Place, appends: bool = False) -> None:
        self._place = place
        descriptor, self._path = tempfile.mkstemp(prefix="s3-")
        os.close(descriptor)
        if appends:
            with contextlib.suppress(store.AbsentError):
                store.download(place, self._path)
        self._file = open(self._path, "ab")  # noqa: SIM115 (closed by the caller)
        self._changed, self._published = True, time.monotonic()

    def append(self, data: bytes) -> None:
        """Writes bytes at the end."""
        self._file.write(data)
        self._changed = True

    def tell(self) -> int:
        """Returns the number of bytes."""
        return self._file.tell()

    def flush(self) -> None:
        """Publishes what is written, unless that was done a moment ago."""
        if time.monotonic() - self._published > _FLUSH_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Publishes what is written."""
        self._file.flush()
        if self._changed:
            store.upload(self._place, self._path)
            self._changed, self._published = False, time.monotonic()

    def close(self) -> None:
        """Publishes what is written, and removes the file on this machine."""
        if self._file.closed:
            return
        try:
            self.sync()
        finally:
            self._remove()

    def drop(self) -> None:
        """Closes a file that its writer has not closed; TensorFlow ignores errors then."""
        with contextlib.suppress(Exception):
            self.close()
        self._remove()

    def _remove(self) -> None:
        self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._path)
