"""CIFAR-10 and CIFAR-100 in their binary version.

Format: https://www.cs.toronto.edu/~kriz/cifar.html - records of one label byte (CIFAR-100: a coarse and a fine one),
then 1,024 bytes each of red, green and blue, row by row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tfx_estimator.data.sources.file_source import ExampleFile, FileSource, read_names
from tfx_estimator.data.sources.files import damaged, reading
from tfx_estimator.data.sources.source import SourceInfo
from tfx_estimator.pipeline.base.files import open_regular
from tfx_estimator.pipeline.config.data import DataSection
from tfx_estimator.pipeline.user_data.records import find_cifar

_SHAPE = (32, 32, 3)
_PIXELS = 32 * 32 * 3
_CITATION = """\
@techreport{krizhevsky2009learning,
  author = {Krizhevsky, Alex},
  title = {Learning multiple layers of features from tiny images},
  institution = {University of Toronto},
  year = {2009}
}"""


class CifarBinarySource(FileSource):
    """A folder (`epath.Path`) of CIFAR-10 or CIFAR-100 (fine labels) binary batches."""

    def __init__(self, section: DataSection, folder: Any) -> None:
        kind, found = find_cifar(folder)
        assert kind is not None  # the caller has asked
        self._kind = kind
        files = {split: [ExampleFile(path, self._count(path)) for path in paths] for split, paths in found.items()}
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
