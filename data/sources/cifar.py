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
from tfx_estimator.pipeline.user_data.read import find_cifar

_SHAPE = (32, 32, 3)
_PIXELS = 32 * 32 * 3
_KINDS = {"cifar10": (1, 10, "batches.meta.txt"), "cifar100": (2, 100, "fine_label_names.txt")}


class CifarBinarySource(FileSource):
    """A folder (`epath.Path`) of CIFAR-10 or CIFAR-100 (fine labels) binary batches."""

    def __init__(self, section: DataSection, folder: Any) -> None:
        name, found = find_cifar(folder)
        # Bytes of labels, of which the last one counts; classes; and the file that names them.
        self._label_bytes, classes, file = _KINDS[name]
        self._record = self._label_bytes + _PIXELS
        files = {split: [ExampleFile(path, self._count(path)) for path in paths] for split, paths in found.items()}
        names = read_names(folder / file) if (folder / file).exists() else list(map(str, range(classes)))
        if len(names) != classes:
            raise damaged(folder / file, f"it names {len(names)} classes", f"{classes}")
        description = f"{name} in binary batches: 32 x 32 colour images"
        info = SourceInfo(name, "", _SHAPE, tuple(names), description=description)
        super().__init__(section, info, files)

    def read_batches(
        self, file: ExampleFile, start: int, stop: int, size: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """See FileSource."""
        with reading(file.path), open_regular(file.path) as stream:
            stream.seek(start * self._record)
            for first in range(start, stop, size):
                count = min(size, stop - first)
                block = stream.read(count * self._record)
                if len(block) < count * self._record:
                    raise damaged(
                        file.path, f"it ends after {first + len(block) // self._record:,} images", f"{file.count:,}"
                    )
                records = np.frombuffer(block, np.uint8).reshape(count, self._record)
                planes = records[:, self._label_bytes :].reshape(count, 3, 32, 32)
                yield planes.transpose(0, 2, 3, 1), records[:, self._label_bytes - 1]

    def _count(self, path: Any) -> int:
        with reading(path), open_regular(path):
            length = path.stat().length
        if length % self._record or not length:
            raise damaged(path, f"it is {length:,} bytes long", f"a multiple of {self._record:,}, one image")
        return length // self._record
