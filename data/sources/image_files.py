"""Images in separate files: the base of image folders and tables of paths."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfx_estimator.data.sources.files import damaged, fingerprint_files, reading
from tfx_estimator.data.sources.image_decoding import read_image, read_shape
from tfx_estimator.data.sources.source import ImageSource, SourceInfo
from tfx_estimator.data.sources.splits import ExampleRange
from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.data import DataSection

_SHOWN_SIZES = 4


@dataclasses.dataclass(frozen=True)
class ImageFile:
    """One image.

    Args:
        path: `epath.Path`.
        key: the path inside the data set, independent of its location.
        label: index of its class.
        named_by: the table and row that name it; empty for a file found in a folder.
    """

    path: Any
    key: str
    label: int
    named_by: str = ""


class ImageFilesSource(ImageSource):
    """Reads PNG and JPEG files, in a deterministic order that mixes the classes.

    The order is that of a hash of each file's key: adding or removing a file does not change the order of the others.
    """

    def __init__(
        self, section: DataSection, name: str, label_names: Sequence[str], splits: Mapping[str, Sequence[ImageFile]]
    ) -> None:
        super().__init__(section)
        self._splits = {split: sorted(files, key=_shuffled) for split, files in splits.items()}
        files = [file for split in splits.values() for file in split]
        height, width, channels = _common_shape(files, name, resized=section.image_size is not None)
        self._info = SourceInfo(
            name=name,
            version="",
            image_shape=(*(section.image_size or (height, width)), channels),
            label_names=tuple(label_names),
            description=f"{len(files):,} images in files of their own",
        )

    @property
    def info(self) -> SourceInfo:
        """See ImageSource."""
        return self._info

    @property
    def is_prepared(self) -> bool:
        """See ImageSource."""
        return True

    def prepare(self) -> None:
        """Does nothing: each image is checked when read."""

    def shard_lengths(self) -> dict[str, tuple[int, ...]]:
        """See ImageSource."""
        return {split: (len(files),) for split, files in self._splits.items()}

    def count_classes(self) -> dict[str, Mapping[int, int]]:
        """See ImageSource."""
        return {split: collections.Counter(file.label for file in files) for split, files in self._splits.items()}

    def read(self, examples: ExampleRange) -> Iterator[tuple[np.ndarray, int]]:
        """See ImageSource."""
        shape = self.info.image_shape
        for file in self._splits[examples.split][examples.start : examples.stop]:
            image = read_image(file.path, shape[2], self.section.image_size)
            if image.shape != shape:
                raise damaged(file.path, f"its image is of shape {image.shape} now", f"{shape}, as when it was listed")
            yield image, file.label

    def fingerprint(self, expressions: Sequence[str]) -> str:
        """Hashes names, labels and contents of the files of the splits in use, split expressions and size of images."""
        used = sorted({part.split for expression in expressions for part in self.resolve(expression)})
        files = {split: sorted(self._splits[split], key=lambda file: file.key) for split in used}
        facts: dict[str, Any] = {
            "source": "images",
            "image_shape": self.info.image_shape,
            "label_names": self.info.label_names,
            "splits": list(expressions),
            "files": {split: [[file.key, file.label] for file in each] for split, each in files.items()},
        }
        if self.section.image_size:
            # Another function would result in other pixels.
            facts["resized"] = "tf.image"
        return fingerprint_files([file.path for each in files.values() for file in each], facts)


def _shuffled(file: ImageFile) -> tuple[bytes, str]:
    try:
        key = file.key.encode()
    except UnicodeEncodeError:
        todo = "rename the file, or its folder"
        raise damaged(file.path, "its name is not valid UTF-8", "names in UTF-8", todo) from None
    return hashlib.blake2b(key, digest_size=8, key=b"tfx-estimator").digest(), file.key


@contextlib.contextmanager
def _named(file: ImageFile) -> Iterator[None]:
    """Raises an error about the table's row, not about a damaged file, if a named image is missing."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        if not file.named_by:
            raise
        raise DataError(
            f"{file.named_by}, which does not exist",
            expected=f"an image at {file.path}: paths are relative to the folder of the table",
            todo="correct the path in this row, put the image there, or remove the row",
        ) from None


def _common_shape(files: Sequence[ImageFile], name: str, resized: bool) -> tuple[int, int, int]:
    """Returns the shape of all images; if they are `resized`, the height and width are those of one of them."""
    by_size: dict[tuple[int, int], list[ImageFile]] = collections.defaultdict(list)
    by_channels: dict[int, list[ImageFile]] = collections.defaultdict(list)
    for file in files:
        with reading(file.path), _named(file):
            stat = file.path.stat()
        height, width, channels = _read_shape(file.path, stat.length, stat.mtime)
        by_size[height, width].append(file)
        by_channels[channels].append(file)
    if len(by_channels) > 1:
        few, many = sorted(by_channels, key=lambda channels: len(by_channels[channels]))
        kinds = {1: "grey", 3: "in colour"}
        raise DataError(
            one_line(
                f"{len(by_channels[few]):,} images of {name} are {kinds[few]}, first {by_channels[few][0].path}, and "
                f"{len(by_channels[many]):,} are {kinds[many]}"
            ),
            expected="all images grey, or all in colour",
            todo="convert one of the two kinds, for example with ImageMagick: `mogrify -colorspace gray`, or "
            "`mogrify -type TrueColor -define png:color-type=2`",
        )
    if len(by_size) > 1 and not resized:
        sizes = sorted(by_size.items(), key=lambda item: -len(item[1]))
        shown = [f"{size[0]} x {size[1]} ({len(of):,}, first {of[0].path})" for size, of in sizes[:_SHOWN_SIZES]]
        more = [f"{len(sizes) - _SHOWN_SIZES} more sizes"] if len(sizes) > _SHOWN_SIZES else []
        raise DataError(
            one_line(f"the images of {name} differ in size, height x width: {', '.join([*shown, *more])}"),
            expected="one size for all images",
            todo="set data.image_size, for example `image_size: [64, 64]`; images are then resized",
        )
    return (*next(iter(by_size)), next(iter(by_channels)))


@functools.lru_cache(maxsize=1_000_000)
def _read_shape(path: Any, length: int, mtime: float) -> tuple[int, int, int]:
    """Caches `read_shape` of unchanged files: a pipeline opens a data set several times."""
    del length, mtime
    return read_shape(path)
