"""IDX files, the format of MNIST.

Format: http://yann.lecun.com/exdb/mnist/ - two zero bytes, one byte for the type (0x08: unsigned byte), one for the
number of dimensions, each dimension as a big-endian 32-bit integer, then the values in C order.
"""

from __future__ import annotations

import contextlib
import gzip
import math
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from tfx_estimator.data.sources.file_source import ExampleFile, FileSource, read_names
from tfx_estimator.data.sources.files import damaged, reading
from tfx_estimator.data.sources.source import SourceInfo
from tfx_estimator.pipeline.base.errors import DamagedDataError
from tfx_estimator.pipeline.base.files import open_regular
from tfx_estimator.pipeline.config.data import DataSection
from tfx_estimator.pipeline.user_data.read import find_idx

_NAMES_FILE = "label_names.txt"


class IdxSource(FileSource):
    """A folder (`epath.Path`) of IDX files, plain or gzipped, with MNIST's names.

    Images are unsigned bytes, (N, H, W) or (N, H, W, C). The splits are `train` and `test`. The classes are the lines
    of a `label_names.txt` next to the files, or else the labels of the training file, from 0 without a gap: a wrong
    label must not become a class.
    """

    def __init__(self, section: DataSection, folder: Any) -> None:
        files: dict[str, list[ExampleFile]] = {}
        shapes: dict[Any, tuple[int, ...]] = {}
        for split, paths in find_idx(folder).items():
            for kind, other in (("images", "labels"), ("labels", "images")):
                if kind not in paths:
                    raise damaged(paths[other], f"its {kind} are missing", f"a file of {kind} next to it")
            images, labels = paths["images"], paths["labels"]
            dims, label_dims = _dims(images, (3, 4)), _dims(labels, (1,))
            if dims[0] != label_dims[0]:
                raise damaged(labels, f"it holds {label_dims[0]:,} labels", f"{dims[0]:,}, one for each of {images}")
            files[split] = [ExampleFile(images, dims[0], labels)]
            shapes[images] = dims[1:] if len(dims) == 4 else (*dims[1:], 1)
        if len(set(shapes.values())) > 1:
            text = ", ".join(f"{path.name} {shape}" for path, shape in shapes.items())
            raise damaged(folder, f"its images differ in shape: {text}", "one shape")
        height, width, channels = next(iter(shapes.values()))
        names = folder / _NAMES_FILE
        label_names = read_names(names) if names.exists() else _number_classes(files)
        info = SourceInfo(
            name=folder.resolve().name,
            version="",
            image_shape=(height, width, channels),
            label_names=tuple(label_names),
            description=f"{sum(file.count for part in files.values() for file in part):,} images in IDX files",
        )
        super().__init__(section, info, files)

    def read_batches(
        self, file: ExampleFile, start: int, stop: int, size: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """See FileSource."""
        images = _values(file.path, start, stop, size)
        for batch, labels in zip(images, _values(file.label_path, start, stop, size)):
            yield batch.reshape(*batch.shape[:3], -1), labels

    def check(self, file: ExampleFile) -> None:
        """Reads gzipped files to their end, where their checksums are; a plain file's length has been checked."""
        for path in (file.path, file.label_path):
            if path.suffix == ".gz":
                with _reading(path) as stream:
                    dims = _header(path, stream)
                    length = 0
                    while block := stream.read(1 << 20):
                        length += len(block)
                if length != math.prod(dims):
                    raise _wrong_length(path, dims, length)


def _number_classes(files: Mapping[str, Sequence[ExampleFile]]) -> list[str]:
    """Returns the labels of the first split, `train` if there is one, as the classes."""
    count = 0
    for (file,) in files.values():
        labels = {
            label for each in _values(file.label_path, 0, file.count, 1 << 16) for label in np.unique(each).tolist()
        }
        count = count or len(labels)
        if max(labels) >= count:
            raise damaged(
                file.label_path,
                f"it holds the labels {', '.join(map(str, sorted(labels)))}",
                "those of the training file, from 0 on without a gap",
                f"correct the labels, or list the classes in a {_NAMES_FILE} next to the files, one name per line",
            )
    return list(map(str, range(count)))


def _dims(path: Any, allowed: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the dimensions in a file's header; checks an uncompressed file's length."""
    with _reading(path) as stream:
        dims = _header(path, stream)
    if len(dims) not in allowed:
        raise damaged(path, f"it has {len(dims)} dimensions", f"{' or '.join(map(str, allowed))}")
    if 0 in dims:
        raise damaged(path, f"its dimensions are {dims}", "at least one example")
    if path.suffix != ".gz":
        length = path.stat().length - 4 - 4 * len(dims)
        if length != math.prod(dims):
            raise _wrong_length(path, dims, length)
    return dims


def _header(path: Any, stream: BinaryIO) -> tuple[int, ...]:
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0":
        raise damaged(path, f"it begins with the bytes {magic.hex(' ') or '(none)'}", "an IDX file, 00 00 08 ...")
    if magic[2] != 0x08:
        raise damaged(path, f"its values are of the IDX type 0x{magic[2]:02x}", "0x08, unsigned bytes")
    dims = stream.read(4 * magic[3])
    if len(dims) < 4 * magic[3]:
        raise damaged(path, "it ends in its header", f"{magic[3]} dimensions")
    return struct.unpack(f">{magic[3]}I", dims)


def _values(path: Any, start: int, stop: int, size: int) -> Iterator[np.ndarray]:
    """Yields entries `start` to `stop` of the first dimension, at most `size` at once."""
    with _reading(path) as stream:
        dims = _header(path, stream)
        entry = math.prod(dims[1:])
        stream.seek(start * entry, 1)
        for first in range(start, stop, size):
            count = min(size, stop - first)
            block = stream.read(count * entry)
            if len(block) < count * entry:
                raise damaged(path, f"it ends after {first + len(block) // entry:,} entries", f"{dims[0]:,}")
            yield np.frombuffer(block, np.uint8).reshape(count, *dims[1:])


@contextlib.contextmanager
def _reading(path: Any) -> Iterator[BinaryIO]:
    try:
        # Only around open: a BadGzipFile is an OSError too.
        with reading(path):
            file = open_regular(path)
        with file:
            if path.suffix == ".gz":
                with gzip.open(file) as stream:
                    yield stream  # type: ignore[misc]
            else:
                yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise damaged(path, f"it cannot be unpacked: {error}", "a complete gzip file") from None


def _wrong_length(path: Any, dims: tuple[int, ...], length: int) -> DamagedDataError:
    return damaged(path, f"it holds {length:,} bytes of values", f"{math.prod(dims):,}, as its header {dims} says")
