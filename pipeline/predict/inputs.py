"""Inputs of a prediction: images, folders, tables of images or of features, and TFRecord files of tf.Examples."""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Union

from tfx_estimator.data.sources.files import damaged, reading
from tfx_estimator.data.sources.image_table import image_paths
from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.base.files import open_regular
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.paths import is_address, is_table
from tfx_estimator.pipeline.predict.rows import TEXT, read_columns
from tfx_estimator.pipeline.user_data.names import (
    HEAD_BYTES,
    SUFFIXES,
    entries,
    find_format,
    is_file,
    is_tool_file,
    is_visible,
)
from tfx_estimator.pipeline.user_data.read import PATHS
from tfx_estimator.pipeline.user_data.record_file import HEAD, is_head

STDIN = "-"
_GZIP = b"\x1f\x8b"
_FORMS = "an image, a CSV or Parquet file, a TFRecord file, or a folder of images and TFRecord files"
_TODO = "correct the name, or leave it out"


class ImageFile(NamedTuple):
    """An image file."""

    name: str
    path: Any


class RecordFile(NamedTuple):
    """A file of serialized tf.Examples."""

    name: str
    path: str
    compression: str


class RowFile(NamedTuple):
    """A table, each row of which is an example.

    Args:
        columns: Their names, and types.
    """

    name: str
    path: str
    columns: Mapping[str, str]


class Unread(NamedTuple):
    """An input that cannot be predicted.

    Args:
        what: The reason, as text: an exception would keep its frames alive, with the file's bytes in them.
    """

    name: str
    what: str


Found = Union[ImageFile, RecordFile, RowFile, Unread]
# What names an example other than a row.
_FILE = {"file": TEXT}


class Inputs:
    """Finds the inputs lazily: there may be millions.

    Args:
        named: Names on the command line.
        lines: Lines of standard input, for the name `-`.
        features: Those that the model parses, unless it takes images: a table that has one is a table of features.
    """

    def __init__(self, named: Iterable[str], lines: Iterable[str] = (), features: Collection[str] = ()) -> None:
        self._named, self._lines, self._features = named, lines, features
        # The columns that name each example, and their types: the same for all.
        self.columns: Mapping[str, str] = {}
        # Files in folders that are neither images nor TFRecords.
        self.left_out: list[str] = []

    def __iter__(self) -> Iterator[Found]:
        """Yields the inputs in the order in which they are named."""
        for each in self._all():
            if not isinstance(each, Unread):
                columns = each.columns if isinstance(each, RowFile) else _FILE
                self.columns = self.columns or columns
                if [*columns.items()] != [*self.columns.items()]:
                    why = f"{each.name} has other columns than the inputs before it, {', '.join(self.columns)}"
                    each = Unread(each.name, one_line(why))
            yield each

    def _all(self) -> Iterator[Found]:
        for name in self._named:
            if name == STDIN:
                for line in self._lines:
                    if line := line.rstrip("\r\n"):
                        yield from _or_unread(line, self._look_at(line))
            else:
                yield from _or_unread(name, self._look_at(name))

    def _look_at(self, name: str) -> Iterator[Found]:
        path = to_path(name)
        if "\0" in name:
            raise damaged(name, "its name holds a null", "a name a line", "leave out -print0, and the like")
        if is_table(name) and self._is_of_features(columns := read_columns(path)):
            yield RowFile(name, str(path), columns)
        elif is_table(name):
            for text, image in image_paths(path):
                yield ImageFile(text, image)
        elif path.name.lower().endswith(SUFFIXES):
            # Reading it will show whether it exists.
            yield ImageFile(name, path)
        elif path.is_dir():
            yield from self._walk(path, (os.path.realpath(path),))
        elif found := _look_into(path):
            yield found
        else:
            raise damaged(path, "its format cannot be predicted", _FORMS, _TODO)

    def _is_of_features(self, columns: Collection[str]) -> bool:
        """Returns whether a table has no column of images, or one that the model parses beside it."""
        others = [name for name in columns if name.strip().lower() not in PATHS]
        return len(others) == len(columns) or any(name in self._features for name in others)

    def _walk(self, folder: Any, above: tuple[str, ...]) -> Iterator[Found]:
        """Yields a folder's files by name, then those of its subfolders; `above` holds its real ancestors."""
        found = [(folder / name, is_folder) for name, is_folder in entries(folder) if not is_tool_file(name)]
        for path in (path for path, is_folder in found if not is_folder):
            yield from _or_unread(str(path), self._file(path))
        for path in (path for path, is_folder in found if is_folder and is_visible(path.name)):
            # A symbolic link may lead back to an ancestor.
            if (real := os.path.realpath(path)) not in above:
                yield from _or_unread(str(path), self._walk(path, (*above, real)))

    def _file(self, path: Any) -> Iterator[Found]:
        name = str(path)
        if path.name.lower().endswith(SUFFIXES) and is_visible(path.name):
            yield ImageFile(name, path)
        elif is_visible(path.name) and not is_table(path.name) and (found := _look_into(path)):
            yield found
        else:
            self.left_out.append(name)


def _or_unread(name: str, found: Iterator[Found]) -> Iterator[Found]:
    """Yields what is found below a name, up to an error, which becomes an input that cannot be read."""
    try:
        with reading(name, _TODO):
            yield from found
    except DataError as error:
        yield Unread(name, error.what)


def to_path(name: str) -> Any:
    """Returns a file's path."""
    # pathlib's Path reads a small image in three quarters of epath's time.
    if not is_address(name):
        return Path(os.path.expanduser(name))
    from etils import epath

    return epath.Path(name)


def _look_into(path: Any) -> Any:
    """Detects a file's format by its first bytes; None if it is neither an image nor a TFRecord file."""
    name = str(path)
    if path.exists() and not is_file(path):
        return None
    with open_regular(path) as file:
        head = file.read(HEAD_BYTES)
        if is_head(head):
            return RecordFile(name, name, "")
        if not head.startswith(_GZIP):
            return ImageFile(name, path) if find_format(head) else None
        file.seek(0)
        with contextlib.suppress(OSError, EOFError), gzip.open(file) as content:
            return RecordFile(name, name, "GZIP") if is_head(content.read(HEAD.size)) else None
    return None
