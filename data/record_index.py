"""Where the records of TFRecord files lie, so that reading can begin anywhere."""

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

# A record is its length in 8 bytes, a checksum of that in 4, the data, and a checksum of those in 4.
_LENGTH = struct.Struct("<Q")
_HEADER, FRAME = 12, 16
# Bytes that are looked at together; of a longer record only its header is read.
_LOOK = 1 << 16
_THREADS = 8
# The blocks are part of the graph: of more records than this many blocks hold, the blocks are larger.
_MAX_BLOCKS = 1 << 17


@dataclass(frozen=True)
class RecordIndex:
    """The records of some files, in blocks that are read in one go.

    Args:
        blocks: Of each block: the number of its file, its first byte there, its length in bytes, its records.
    """

    files: Sequence[str]
    blocks: Sequence[tuple[int, int, int, int]]

    @functools.cached_property
    def records(self) -> int:
        """In all files."""
        return sum(count for *_, count in self.blocks)


def index_records(files: Sequence[str], block: int, folder: Optional[str] = None) -> RecordIndex:
    """Finds the records of files: reads every record's length, once.

    Args:
        block: Records in a block; a file's last block has fewer. There are more in a block where a data set is huge.
        folder: Keeps what was found, for the next start and for the other tasks of a cluster; None keeps nothing.

    Returns:
        The index; the same for the same files and block.
    """
    found = _kept(files, block, folder) if folder else _scan_all(files, block)
    blocks = []
    for number, (size, count, offsets) in enumerate(found["files"]):
        starts = range(0, count, found["block"])
        for start, first, end in zip(starts, offsets, [*offsets[1:], size]):
            blocks.append((number, first, end - first, min(found["block"], count - start)))
    if not blocks:
        raise DataError(
            f"there is no training example in {', '.join(map(os.path.basename, files)) or 'no file'}",
            expected="at least one",
            todo="see what the ExampleGen wrote",
        )
    return RecordIndex(files, blocks)


def _kept(files: Sequence[str], block: int, folder: str) -> dict[str, Any]:
    """What was found before, if it was; else it is found, and kept."""
    key = hashlib.sha256(json.dumps([list(files), block]).encode()).hexdigest()[:16]
    path = os.path.join(folder, f"record-index-{key}.json")
    found = _load(path)
    if found:
        _check_sizes(files, found)
        return found
    found = _scan_all(files, block)
    _save(path, found)
    return found


def _scan_all(files: Sequence[str], block: int) -> dict[str, Any]:
    """Of each file: its bytes, its records, and the first byte of each block."""
    with ThreadPoolExecutor(_THREADS) as pool:
        scanned = list(pool.map(functools.partial(_scan, block=block), files))
    while sum(len(offsets) for _, _, offsets in scanned) > _MAX_BLOCKS and any(len(each[2]) > 1 for each in scanned):
        scanned = [(size, count, offsets[::2]) for size, count, offsets in scanned]
        block *= 2
    return {"block": block, "files": scanned}


def _scan(path: str, block: int) -> tuple[int, int, list[int]]:
    size = tf.io.gfile.stat(path).length
    offsets: list[int] = []
    count, position, seen, looked = 0, 0, b"", 0
    with tf.io.gfile.GFile(path, "rb") as file:
        while position < size:
            inside = position - looked
            if inside + _HEADER > len(seen):
                file.seek(position)
                looked, inside, seen = position, 0, file.read(_LOOK)
            if count % block == 0:
                offsets.append(position)
            length = _LENGTH.unpack_from(seen, inside)[0] if len(seen) >= _HEADER else size
            position += FRAME + length
            count += 1
    if position > size:
        raise DamagedDataError(
            f"damaged file {path}: it ends within its record {count:,}, after {size:,} bytes",
            expected="a whole TFRecord file, not compressed",
            todo="prepare the data set again",
        )
    return size, count, offsets


def _check_sizes(files: Sequence[str], found: dict[str, Any]) -> None:
    for path, (size, count, _) in zip(files, found["files"]):
        length = tf.io.gfile.stat(path).length
        if length != size:
            raise DamagedDataError(
                f"damaged file {path}: it has {length:,} bytes",
                expected=f"{size:,} bytes, {count:,} records, as when this training began",
                todo="bring the file back; or prepare the data set again, and train anew",
            )


def _load(path: str) -> Optional[dict[str, Any]]:
    try:
        with tf.io.gfile.GFile(path, "r") as file:
            return json.load(file)
    except (tf.errors.NotFoundError, ValueError):
        return None


def _save(path: str, found: dict[str, Any]) -> None:
    """All tasks of a cluster may do so at once, and write the same."""
    tf.io.gfile.makedirs(os.path.dirname(path))
    draft = f"{path}.{uuid.uuid4().hex}.tmp"
    with tf.io.gfile.GFile(draft, "w") as file:
        json.dump(found, file)
    tf.io.gfile.rename(draft, path, overwrite=True)
