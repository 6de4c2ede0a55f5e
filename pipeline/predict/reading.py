"""Reads the inputs in threads, keeps their order, and batches them."""

from __future__ import annotations

import collections
import itertools
import os
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, NamedTuple, Optional, Union

import numpy as np
import tensorflow as tf

from tfx_estimator.data.sources.files import damaged
from tfx_estimator.data.sources.image_decoding import read_image
from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.predict.features import Feature, to_example
from tfx_estimator.pipeline.predict.inputs import Found, ImageFile, RecordFile, RowFile, Unread, to_path
from tfx_estimator.pipeline.predict.rows import TEXT, read_rows, to_text

# Images in a thread's task: reading a small one takes less time than submitting a task.
_CHUNK = 32
# Queued chunks for each thread.
_AHEAD = 3


class Batch(NamedTuple):
    """Examples of one call of the model.

    Args:
        values: uint8 [batch, height, width, channels]; or serialized tf.Examples.
        cells: Of rows of a table, what is written of them; None for others, of which that is the name.
    """

    names: Sequence[str]
    values: Union[np.ndarray, Sequence[bytes]]
    cells: Optional[Sequence[Sequence[Any]]] = None

    def one(self, number: int) -> Batch:
        """Returns an example as a batch."""
        which = slice(number, number + 1)
        return Batch(self.names[which], self.values[which], self.cells and self.cells[which])


class _Read(NamedTuple):
    name: str
    value: Union[np.ndarray, bytes]
    cells: Optional[Sequence[Any]] = None


def batches(
    found: Iterable[Found],
    channels: int,
    size: Optional[tuple[int, int]],
    most: int,
    threads: int,
    features: Mapping[str, Feature] = MappingProxyType({}),
) -> Iterator[Union[Batch, Unread]]:
    """Yields batches, and inputs that cannot be read, in the order of `found`.

    Args:
        channels: Channels of images.
        size: Height and width to resize images to; None keeps their size, with one size per batch.
        most: Maximum of examples in a batch.
        threads: Number of reading threads.
        features: What the model parses of a table's rows.
    """
    waiting: list[_Read] = []
    for each in _read_all(found, channels, size, threads, features):
        if isinstance(each, Unread):
            yield each
            continue
        if waiting and (len(waiting) == most or _kind(each) != _kind(waiting[0])):
            yield _batch(waiting)
            waiting = []
        waiting.append(each)
    if waiting:
        yield _batch(waiting)


def _kind(read: _Read) -> tuple:
    return read.value.shape if isinstance(read.value, np.ndarray) else ()


def _batch(read: Sequence[_Read]) -> Batch:
    values = [each.value for each in read]
    stacked = np.stack(values) if isinstance(values[0], np.ndarray) else values  # type: ignore[arg-type]
    cells = [each.cells for each in read if each.cells is not None]
    return Batch([each.name for each in read], stacked, cells or None)  # type: ignore[arg-type]


def _read_all(
    found: Iterable[Found],
    channels: int,
    size: Optional[tuple[int, int]],
    threads: int,
    features: Mapping[str, Feature],
) -> Iterator[Union[_Read, Unread]]:
    def read_images(files: Sequence[ImageFile]) -> list[Union[_Read, Unread]]:
        return [_read_image(file, channels, size) for file in files]

    # A chunk of photographs in full size would take a gigabyte.
    length = _CHUNK if size else 1
    pending: collections.deque[Union[Future, RecordFile, RowFile, Unread]] = collections.deque()

    def take() -> Iterator[Union[_Read, Unread]]:
        first = pending.popleft()
        if isinstance(first, Future):
            yield from first.result()
        elif isinstance(first, RecordFile):
            yield from _read_records(first)
        elif isinstance(first, RowFile):
            yield from _read_rows(first, features)
        else:
            yield first

    pool = ThreadPoolExecutor(threads)
    try:
        for is_image, group in itertools.groupby(found, lambda each: isinstance(each, ImageFile)):
            while chunk := list(itertools.islice(group, length)):
                pending.extend([pool.submit(read_images, chunk)] if is_image else chunk)  # type: ignore[arg-type, list-item]
                while len(pending) > _AHEAD * threads:
                    yield from take()
        while pending:
            yield from take()
    finally:
        # Without waiting: a network's file may never be read to its end.
        pool.shutdown(wait=False, cancel_futures=True)


def _read_image(file: ImageFile, channels: int, size: Optional[tuple[int, int]]) -> Union[_Read, Unread]:
    try:
        return _Read(file.name, read_image(file.path, channels, size))
    except DataError as error:
        # The frames hold the file's bytes, in a reference cycle.
        traceback.clear_frames(error.__traceback__)
        return Unread(file.name, error.what)


def _read_rows(file: RowFile, features: Mapping[str, Feature]) -> Iterator[Union[_Read, Unread]]:
    """Yields the rows of a table as tf.Examples; the cells of columns of text are kept as text."""
    texts = [kind == TEXT for kind in file.columns.values()]
    try:
        for place, cells in read_rows(to_path(file.path)):
            name = f"{file.name}, {place}"
            try:
                if len(cells) != len(texts):
                    raise ValueError(f"the row has {len(cells)} cells, and the table {len(texts)} columns")
                kept = [to_text(cell) if is_text else cell for cell, is_text in zip(cells, texts)]
                yield _Read(name, to_example(features, list(file.columns), cells), kept)
            except ValueError as wrong:
                yield Unread(name, one_line(f"{name}: {wrong}"))
    except DataError as error:
        yield Unread(file.name, error.what)


def _read_records(file: RecordFile) -> Iterator[Union[_Read, Unread]]:
    """Yields the records of a file up to the first damaged one; a record's name is its number."""
    records = tf.data.TFRecordDataset(os.fsencode(file.path), file.compression).prefetch(_CHUNK).as_numpy_iterator()
    for number in itertools.count():
        try:
            yield _Read(f"{file.name}:{number}", next(records))
        except StopIteration:
            return
        except tf.errors.OpError as error:
            wrong = damaged(file.name, f"after {number:,} records: {error.message}", "a TFRecord file")
            yield Unread(file.name, wrong.what)
            return
