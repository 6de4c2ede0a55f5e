"""The base of IDX files and CIFAR binary batches: records of one fixed size, in a few files."""

from __future__ import annotations

import abc
import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfx_estimator.data.resizing import resize_uint8
from tfx_estimator.data.sources.files import TABLE_BYTES, damaged, fingerprint_files, reading
from tfx_estimator.data.sources.image_decoding import to_channels
from tfx_estimator.data.sources.source import ImageSource, SourceInfo
from tfx_estimator.data.sources.splits import ExampleRange
from tfx_estimator.pipeline.base.files import open_regular
from tfx_estimator.pipeline.config.data import DataSection
from tfx_estimator.pipeline.user_data.names import nfc

# Examples read at once.
_BATCH = 256


@dataclasses.dataclass(frozen=True)
class ExampleFile:
    """A file (`epath.Path`), and its number of examples; their labels may have a file of their own."""

    path: Any
    count: int
    label_path: Any = None


class FileSource(ImageSource):
    """Reads examples of one fixed size from files, which need no preparation.

    Args:
        info: describes the data set, with the image shape in the files.
    """

    def __init__(self, section: DataSection, info: SourceInfo, files: Mapping[str, Sequence[ExampleFile]]) -> None:
        super().__init__(section)
        height, width, channels = info.image_shape
        self._resize = section.image_size if section.image_size != (height, width) else None
        shape = (*(self._resize or (height, width)), section.channels or channels)
        self._info = dataclasses.replace(info, image_shape=shape)
        self._files = files

    @property
    def info(self) -> SourceInfo:
        """See ImageSource."""
        return self._info

    @property
    def is_prepared(self) -> bool:
        """See ImageSource."""
        return True

    def prepare(self) -> None:
        """Checks all files: see `check`."""
        for files in self._files.values():
            for file in files:
                self.check(file)

    def shard_lengths(self) -> dict[str, tuple[int, ...]]:
        """See ImageSource."""
        return {split: tuple(file.count for file in files) for split, files in self._files.items()}

    def count_classes(self) -> dict[str, Mapping[int, int]]:
        """See ImageSource."""
        counts: dict[str, Mapping[int, int]] = {}
        for split, files in self._files.items():
            batches = (labels for file in files for _, labels in self.read_batches(file, 0, file.count, _BATCH))
            counts[split] = collections.Counter(label for labels in batches for label in labels.tolist())
        return counts

    def read(self, examples: ExampleRange) -> Iterator[tuple[np.ndarray, int]]:
        """See ImageSource."""
        offset = 0
        for file in self._files[examples.split]:
            start, stop = max(examples.start - offset, 0), min(examples.stop - offset, file.count)
            offset += file.count
            if start < stop:
                yield from self._read_file(file, start, stop)

    def fingerprint(self, expressions: Sequence[str]) -> str:
        """Hashes the files of the splits in use, the split expressions and the size of images."""
        used = {part.split for expression in expressions for part in self.resolve(expression)}
        files = [file for split in sorted(used) for file in self._files[split]]
        paths = [path for file in files for path in (file.path, file.label_path) if path is not None]
        facts = {
            "source": type(self).__name__,
            "image_shape": self.info.image_shape,
            "label_names": self.info.label_names,
            "splits": list(expressions),
        }
        return fingerprint_files(paths, facts)

    def _read_file(self, file: ExampleFile, start: int, stop: int) -> Iterator[tuple[np.ndarray, int]]:
        index = start
        for images, labels in self.read_batches(file, start, stop, _BATCH):
            images = to_channels(images, self.info.image_shape[2])
            if self._resize:
                images = resize_uint8(images, self._resize).numpy()
            for image, label in zip(images, labels.tolist()):
                if label >= self.info.num_classes:
                    raise damaged(
                        file.label_path or file.path,
                        f"example {index:,} has the label {label}",
                        f"labels from 0 to {self.info.num_classes - 1}",
                    )
                yield image, label
                index += 1

    @abc.abstractmethod
    def read_batches(
        self, file: ExampleFile, start: int, stop: int, size: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields images (n, H, W, C) and labels (n,), both uint8, of examples `start` to `stop`, n up to `size`."""

    def check(self, file: ExampleFile) -> None:
        """Raises DamagedDataError if a file's contents do not match its length and header."""


def read_names(path: Any) -> list[str]:
    """Returns the classes in a file, one per line, without a byte order mark."""
    with reading(path), open_regular(path, TABLE_BYTES) as file:
        lines = file.read().decode("utf-8-sig").replace("\r", "\n").split("\n")
    names = [nfc(line.strip()) for line in lines if line.strip()]
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise damaged(path, f"it names {repeated!r} more than once", "each class once", "correct the file")
    return names
