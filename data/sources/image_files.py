"""Images in separate files: the base of folders by class and tables of paths; and folders by class."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfx_estimator.data.sources.files import damaged, fingerprint_files, reading
from tfx_estimator.data.sources.image_decoding import read_header, read_image
from tfx_estimator.data.sources.source import ImageSource, SourceInfo
from tfx_estimator.data.sources.splits import ExampleRange
from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.data import DataSection
from tfx_estimator.pipeline.user_data.folder import read_folder
from tfx_estimator.pipeline.user_data.reading import listed


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


_Files = Mapping[str, Sequence[ImageFile]]


class Contents(NamedTuple):
    """The images of each size (height, width), of each number of channels, and of each format."""

    sizes: dict[tuple[int, int], list[ImageFile]]
    channels: dict[int, list[ImageFile]]
    formats: dict[str, list[ImageFile]]


class ImageFilesSource(ImageSource):
    """Reads image files, in a deterministic order that mixes the classes.

    The order is that of a hash of each file's key: adding or removing a file does not change the order of the others.
    """

    def __init__(
        self, section: DataSection, name: str, label_names: Sequence[str], splits: _Files, notes: Iterable[str]
    ) -> None:
        super().__init__(section)
        self._splits = {split: sorted(files, key=_shuffled) for split, files in splits.items()}
        self.contents = read_contents([file for split in splits.values() for file in split])
        height, width = section.image_size or _only_size(self.contents.sizes, name)
        channels = section.channels or max(self.contents.channels)
        self._notes = list(notes)
        self._hashes: dict[Any, bytes] = {}  # of files in fingerprints
        if not section.channels and len(self.contents.channels) > 1:
            grey = self.contents.channels[1]
            what = f"grey images, read in colour as the others: {len(grey):,}, first {grey[0].path}"
            self._notes.append(one_line(f"{what}; data.channels: 3 declares it, and 1 reads all in grey"))
        self._info = SourceInfo(
            name=name,
            version="",
            image_shape=(height, width, channels),
            label_names=tuple(label_names),
            description=f"{sum(map(len, splits.values())):,} images in files of their own",
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

    def notes(self, expressions: Sequence[str] = ()) -> tuple[str, ...]:
        """See ImageSource; tells of equal images in two of the split expressions, or in two classes."""
        named = {
            each: [file for part in self.resolve(each) for file in self._splits[part.split][part.start : part.stop]]
            for each in expressions
        }
        if any(file.path not in self._hashes for files in named.values() for file in files):
            self.fingerprint(expressions)
        return (*self._notes, *_find_repeated(named, self._hashes))

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
        return fingerprint_files([file.path for each in files.values() for file in each], facts, self._hashes)


class ImageFolderSource(ImageFilesSource):
    """Reads a folder for each class, below folders of splits or not."""

    def __init__(self, section: DataSection, folder: Any) -> None:
        found = read_folder(folder, section.splits.names())
        if found.refusal:
            raise found.refusal
        labels = {name: label for label, name in enumerate(found.classes)}
        splits = {
            split: [
                ImageFile(found.folders[split] / name, f"{split}/{name}", labels[of])
                for of, names in classes.items()
                for name in names
            ]
            for split, classes in found.files.items()
        }
        super().__init__(section, folder.resolve().name, found.classes, splits, found.notes())


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


def _only_size(sizes: Mapping[tuple[int, int], Sequence[ImageFile]], name: str) -> tuple[int, int]:
    """Returns the size of all images; raises an error if they differ in it."""
    if len(sizes) > 1:
        ordered = sorted(sizes.items(), key=lambda item: -len(item[1]))
        shown = listed([f"{size[0]} x {size[1]} ({len(of):,}, first {of[0].path})" for size, of in ordered], 4)
        raise DataError(
            one_line(f"the images of {name} differ in size, height x width: {shown}"),
            expected="one size for all images",
            todo="set data.image_size, for example `image_size: [64, 64]`; images are then resized",
        )
    return next(iter(sizes))


def read_contents(files: Sequence[ImageFile]) -> Contents:
    """Reads the header of each image."""
    found = Contents({}, {}, {})
    for file in files:
        with reading(file.path), _named(file):
            stat = file.path.stat()
        height, width, channels, form = _read_header(file.path, stat.length, stat.mtime)
        found.sizes.setdefault((height, width), []).append(file)
        found.channels.setdefault(channels, []).append(file)
        found.formats.setdefault(form, []).append(file)
    return found


@functools.lru_cache(maxsize=1_000_000)
def _read_header(path: Any, length: int, mtime: float) -> tuple[int, int, int, str]:
    """Caches `read_header` of unchanged files: a pipeline opens a data set several times."""
    del length, mtime
    return read_header(path)


def _find_repeated(splits: _Files, hashes: Mapping[Any, bytes]) -> Iterator[str]:
    """Yields a note for images that are byte for byte in two splits, and for those in two classes."""
    first: dict[bytes, tuple[str, ImageFile]] = {}
    pairs: dict[str, dict[Any, tuple[ImageFile, ImageFile]]] = {}  # note -> path or content -> these
    for split, files in splits.items():
        for file in files:
            if file.path in hashes:
                other_split, other = first.setdefault(hashes[file.path], (split, file))
                if split != other_split:
                    what = f"of the {len(files):,} images of {split} also in {other_split}"
                    pairs.setdefault(what, {})[file.path] = file, other
                if file.label != other.label:
                    # Once, wherever its copies are.
                    pairs.setdefault("also in another class", {}).setdefault(hashes[file.path], (file, other))
    for what, found in pairs.items():
        one, same = next(iter(found.values()))
        yield one_line(f"{what}, byte for byte: {len(found):,}, as {one.path} and {same.path}")
