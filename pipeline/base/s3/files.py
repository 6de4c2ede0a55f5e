"""Open files of the store: what TensorFlow reads, in blocks, and what it writes, by a file on this machine."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterator

from tfx_estimator.pipeline.base.s3 import store
from tfx_estimator.pipeline.base.s3.asking import AbsentError, RefusedError
from tfx_estimator.pipeline.base.s3.store import Place

# Bytes of the first block of a file, which is often all of it, and of the others; and how many are kept.
_FIRST, _BLOCK, _BLOCKS = 128 * 2**10, 2 * 2**20, 64
# Bytes that are read without a block.
_DIRECT = 4 * 2**20
# A file that stays open, such as TensorBoard's events, is published no more often than this.
_FLUSH_SECONDS = 10.0


class OutOfRangeError(Exception):
    """Fewer bytes were `read` than were asked for: the file ends."""

    def __init__(self, read: int) -> None:
        super().__init__(read)
        self.read = read


class Reader:
    """Reads one version of a file: one that is replaced meanwhile ends in an error, not in a mixture.

    It is never closed, because C would call Python for that after Python's end. So those of the same version are one,
    and their blocks are in one cache.
    """

    _known: dict[tuple[Place, str], Reader] = {}
    _cache: OrderedDict[tuple[Reader, int], bytes] = OrderedDict()
    _lock = threading.Lock()

    def __init__(self, place: Place, size: int, etag: str) -> None:
        self._place, self._size, self._etag = place, size, etag

    @classmethod
    def of(cls, place: Place) -> Reader:
        """Returns the reader of a file's present version; raises AbsentError, or RefusedError for a folder."""
        found = store.stat(place)
        if found.is_folder:
            raise RefusedError("IsFolder", 412, f"{place} is a folder")
        content = b""
        if found.size <= _FIRST:
            # At once with its ETag: it may be replaced between two requests, as TensorFlow's `checkpoint` is.
            content, etag = store.read_whole(place)
            found = found._replace(size=len(content), etag=etag)
        reader = cls._known.setdefault((place, found.etag), cls(place, found.size, found.etag))
        if content:
            reader._keep((reader, 0), content)
        return reader

    def pieces(self, start: int, size: int) -> Iterator[bytes]:
        """Yields bytes in order; fewer at the end of the file."""
        end = min(start + size, self._size)
        while start < end:
            if end - start >= _DIRECT:  # of a large tensor, which nobody reads again
                piece = self._fetch(start, min(end, start + 4 * _DIRECT))
            else:
                number = 0 if start < _FIRST else 1 + (start - _FIRST) // _BLOCK
                first = 0 if number == 0 else _FIRST + (number - 1) * _BLOCK
                block = self._block(number, first, min(_FIRST if number == 0 else first + _BLOCK, self._size))
                piece = block[start - first : end - first]
            yield piece
            start += len(piece)

    def _block(self, number: int, start: int, end: int) -> bytes:
        key = (self, number)
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
        block = self._fetch(start, end)
        self._keep(key, block)
        return block

    def _fetch(self, start: int, end: int) -> bytes:
        found = store.read(self._place, start, end - start, self._etag)
        if len(found) != end - start:
            raise RefusedError("Truncated", 0, f"{self._place}: {len(found)} of {end - start} bytes from {start}")
        return found

    def _keep(self, key: tuple[Reader, int], block: bytes) -> None:
        with self._lock:
            self._cache[key] = block
            if len(self._cache) > _BLOCKS:
                self._cache.popitem(last=False)


# Another thread may hold it when this process forks.
os.register_at_fork(after_in_child=lambda: Reader._lock._at_fork_reinit())  # type: ignore[attr-defined]
_writers: weakref.WeakSet[Writer] = weakref.WeakSet()


def _settle() -> None:
    for writer in list(_writers):
        writer.settle()


# What is in a buffer at a fork, both processes would write.
os.register_at_fork(before=_settle)


class Writer:
    """Writes a file on this machine, which the store gets as a whole when it is closed or synchronized."""

    def __init__(self, place: Place, appends: bool = False) -> None:
        self._place = place
        descriptor, self._path = tempfile.mkstemp(prefix="s3-")
        os.close(descriptor)
        if appends:
            with contextlib.suppress(AbsentError):
                store.download(place, self._path)
        self._file = open(self._path, "ab")  # noqa: SIM115 (closed by the caller)
        self._changed, self._next, self._pid = True, time.monotonic() + _FLUSH_SECONDS, os.getpid()
        _writers.add(self)

    def settle(self) -> None:
        """Empties the buffer into the file on this machine."""
        if not self._file.closed:
            self._file.flush()

    def append(self, data: bytes) -> None:
        """Writes bytes at the end."""
        self._file.write(data)
        self._changed = True

    def tell(self) -> int:
        """Returns the number of bytes."""
        return self._file.tell()

    def flush(self) -> None:
        """Publishes what is written, unless that was done a moment ago."""
        if time.monotonic() > self._next:
            self.sync()

    def sync(self) -> None:
        """Publishes what is written."""
        self._file.flush()
        if self._changed:
            begun = time.monotonic()
            store.upload(self._place, self._path)
            # The whole file is sent each time, so a large one more seldom.
            self._changed, self._next = False, time.monotonic() + max(_FLUSH_SECONDS, 20 * (time.monotonic() - begun))

    def close(self) -> None:
        """Publishes what is written, and removes the file on this machine."""
        if self._file.closed or self._pid != os.getpid():  # of a forked process's parent
            return
        try:
            self.sync()
        except Exception:
            self._remove()
            raise
        # Not after a signal: what is left open is published when the process ends.
        self._remove()

    def drop(self) -> None:
        """Closes a file that its writer has not closed; TensorFlow ignores errors then."""
        with contextlib.suppress(Exception):
            self.close()

    def _remove(self) -> None:
        self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._path)
