"""The offsets of records in TFRecord files, so that reading can start anywhere."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import struct
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.pipeline.base.errors import DamagedDataError, DataError
from tfx_estimator.pipeline.base.files import parsed

# A record is its length in 8 bytes, a checksum of that in 4, the data, and their checksum in 4.
_LENGTH = struct.Struct("<Q")
_HEADER, FRAME = 12, 16
# Bytes read at once; of a longer record only the header is read.
_READ_BYTES = 1 << 16
_THREADS = 8
# The blocks are part of the graph: they become larger if there would be more.
_MAX_BLOCKS = 1 << 17


@dataclass(frozen=True)
class RecordIndex:
    """The records of some files, in blocks that are read in one request.

    Args:
        blocks: For each block the index of its file, its offset and length in bytes, and its number of records.
    """

    files: Sequence[str]
    blocks: Sequence[tuple[int, int, int, int]]

    @functools.cached_property
    def records(self) -> int:
        """The number of records in all files."""
        return sum(count for *_, count in self.blocks)

    @property
    def bytes(self) -> int:
        """Their size in the files."""
        return sum(length for _, _, length, _ in self.blocks)


def index_records(files: Sequence[str], block: int, folder: Optional[str] = None) -> RecordIndex:
    """Indexes the records of files, by reading every record's length once.

    Args:
        block: Records in a block; a file's last block has fewer. A huge data set has larger blocks.
        folder: Stores the offsets, for the next start and for the other tasks of a cluster; None stores nothing.

    Returns:
        The index, deterministic for the same files and block.
    """
    found = _stored(files, block, folder) if folder else _scan_all(files, block)
    blocks = []
    for number, (size, count, offsets) in enumerate(found["files"]):
        starts = range(0, count, found["block"])
        for start, first, end in zip(starts, offsets, [*offsets[1:], size]):
            blocks.append((number, first, end - first, min(found["block"], count - start)))
    if not blocks:
        raise DataError(
            f"there is no training example in {', '.join(map(os.path.basename, files)) or 'no file'}",
            expected="at least one",
            todo="check the output of the ExampleGen",
        )
    return RecordIndex(files, blocks)


def _stored(files: Sequence[str], block: int, folder: str) -> dict[str, Any]:
    """Loads the stored offsets; if there are none, scans the files and stores the result."""
    key = hashlib.sha256(json.dumps([list(files), block]).encode()).hexdigest()[:16]
    path = os.path.join(folder, f"record-index-{key}.json")
    found = _load(path)
    if not found:
        found = _scan_all(files, block)
        _save(path, found)
    return found


def _scan_all(files: Sequence[str], block: int) -> dict[str, Any]:
    """Returns for each file its size, its number of records, and the offset of each block."""
    with ThreadPoolExecutor(_THREADS) as pool:
        scanned = list(pool.map(functools.partial(_scan, block=block), files))
    while sum(len(offsets) for _, _, offsets in scanned) > _MAX_BLOCKS and any(len(each[2]) > 1 for each in scanned):
        scanned = [(size, count, offsets[::2]) for size, count, offsets in scanned]
        block *= 2
    return {"block": block, "files": scanned}


def _scan(path: str, block: int) -> tuple[int, int, list[int]]:
    size = tf.io.gfile.stat(path).length
    offsets: list[int] = []
    count, position, buffer, buffer_start = 0, 0, b"", 0
    with tf.io.gfile.GFile(path, "rb") as file:
        while position < size:
            inside = position - buffer_start
            if inside + _HEADER > len(buffer):
                file.seek(position)
                buffer_start, inside, buffer = position, 0, file.read(_READ_BYTES)
            if count % block == 0:
                offsets.append(position)
            length = _LENGTH.unpack_from(buffer, inside)[0] if len(buffer) >= _HEADER else size
            position += FRAME + length
            count += 1
    if position > size:
        raise DamagedDataError(
            f"damaged file {path}: it ends within its record {count:,}, after {size:,} bytes",
            expected="a complete TFRecord file, not compressed",
            todo="prepare the data set again",
        )
    return size, count, offsets


def _load(path: str) -> Optional[dict[str, Any]]:
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return parsed(file.read())
    except tf.errors.NotFoundError:
        return None


def _save(path: str, found: dict[str, Any]) -> None:
    """Writes the offsets atomically; the tasks of a cluster may do so concurrently, with the same content."""
    tf.io.gfile.makedirs(os.path.dirname(path))
    draft = f"{path}.{uuid.uuid4().hex}.tmp"
    with tf.io.gfile.GFile(draft, "w") as file:
        json.dump(found, file)
    tf.io.gfile.rename(draft, path, overwrite=True)
