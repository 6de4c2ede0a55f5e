"""CIFAR-10 and CIFAR-100 in their binary version.

Format: https://www.cs.toronto.edu/~kriz/cifar.html - records of one label byte (CIFAR-100: a coarse and a fine one),
then 1,024 bytes each of red, green and blue, row by row.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfx_estimator.data.sources.file_source import ExampleFile, FileSource, read_names
from tfx_estimator.data.sources.files import damaged, reading
from tfx_estimator.data.sources.source import SourceInfo
from tfx_estimator.pipeline.base.files import open_regular
from tfx_estimator.pipeline.config.data import DataSection

FORM = "CIFAR binary batches (data_batch_1.bin, ..., test_batch.bin; or CIFAR-100's train.bin, test.bin)"
_SHAPE = (32, 32, 3)
_PIXELS = 32 * 32 * 3
_CITATION = """\
@techreport{krizhevsky2009learning,
  author = {Krizhevsky, Alex},
  title = {Learning multiple layers of features from tiny images},
  institution = {University of Toronto},
  year = {2009}
}"""


@dataclasses.dataclass(frozen=True)
class _Kind:
    """One of the two data sets; `train` and `test` match file names; the last label byte is used."""

    name: str
    train: str
    test: str
    label_bytes: int
    num_classes: int
    names_file: str


_KINDS = (
    _Kind("cifar10", r"^data_batch_(\d+)\.bin$", r"^test_batch\.bin$", 1, 10, "batches.meta.txt"),
    _Kind("cifar100", r"^train\.bin$", r"^test\.bin$", 2, 100, "fine_label_names.txt"),
)


class CifarBinarySource(FileSource):
    """A folder (`epath.Path`) of CIFAR-10 or CIFAR-100 (fine labels) binary batches."""

    def __init__(self, section: DataSection, folder: Any) -> None:
        self._kind = next(kind for kind in _KINDS if _find(folder, kind))
        files = {
            split: [ExampleFile(path, self._count(path)) for path in paths]
            for split, paths in _find(folder, self._kind).items()
        }
        names_file = folder / self._kind.names_file
        names = [str(label) for label in range(self._kind.num_classes)]
        if names_file.exists():
            names = read_names(names_file)
            if len(names) != self._kind.num_classes:
                raise damaged(names_file, f"it names {len(names)} classes", f"{self._kind.num_classes}")
        info = SourceInfo(
            name=self._kind.name,
            version="",
            image_shape=_SHAPE,
            label_names=tuple(names),
            citation=_CITATION,
            description=f"{self._kind.name} in binary batches: 32 x 32 colour images",
        )
        super().__init__(section, info, files)

    @staticmethod
    def recognises(folder: Any) -> bool:
        """Returns True if a folder (`epath.Path`) holds CIFAR binary batches."""
        return any(_find(folder, kind) for kind in _KINDS)

    def read_batches(
        self, file: ExampleFile, start: int, stop: int, size: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """See FileSource."""
        record = self._record
        with reading(file.path), open_regular(file.path) as stream:
            stream.seek(start * record)
            for first in range(start, stop, size):
                count = min(size, stop - first)
                block = stream.read(count * record)
                if len(block) < count * record:
                    raise damaged(
                        file.path, f"it ends after {first + len(block) // record:,} images", f"{file.count:,}"
                    )
                records = np.frombuffer(block, np.uint8).reshape(count, record)
                planes = records[:, self._kind.label_bytes :].reshape(count, 3, 32, 32)
                yield planes.transpose(0, 2, 3, 1), records[:, self._kind.label_bytes - 1]

    @property
    def _record(self) -> int:
        return self._kind.label_bytes + _PIXELS

    def _count(self, path: Any) -> int:
        with reading(path), open_regular(path):
            length = path.stat().length
        if length % self._record or not length:
            raise damaged(
                path, f"it is {length:,} bytes long", f"a multiple of {self._record:,}, one {self._kind.name} image"
            )
        return length // self._record


def _find(folder: Any, kind: _Kind) -> dict[str, list[Any]]:
    """Returns the files of each split, batches by their numbers."""
    found: dict[str, list[Any]] = {}
    for split, pattern in (("train", kind.train), ("test", kind.test)):
        matches = [(path, match) for path in folder.iterdir() if (match := re.match(pattern, path.name))]
        matches.sort(key=lambda pair: [int(number) for number in pair[1].groups()])
        if matches:
            found[split] = [path for path, _ in matches]
    return found
