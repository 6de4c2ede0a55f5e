"""A table of features, read before Beam reads it: its columns as TFX's ExampleGen infers them, and what is doubtful.

Small tables are read as a whole; of others, the first rows of each file.
"""

from __future__ import annotations

import fnmatch
import glob
import heapq
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from tfx_estimator.pipeline.base.errors import DataError, DataNotFoundError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.user_data import csv_file, parquet_file, record_file
from tfx_estimator.pipeline.user_data.names import SUFFIXES, entries, is_visible
from tfx_estimator.pipeline.user_data.read import is_prepared
from tfx_estimator.pipeline.user_data.reading import listed
from tfx_estimator.pipeline.user_data.spans import split_pattern
from tfx_estimator.pipeline.user_data.table_checks import Cells, find_doubts, refuse_kinds, refuse_label
from tfx_estimator.pipeline.user_data.table_file import FLOAT, INT, Cell, TableFile, unite

# By the key of `data` that names its files.
FORMATS: Mapping[str, Any] = {"csv": csv_file, "parquet": parquet_file, "tfrecord": record_file}

# The most that is read of all files.
_ROWS, _CELLS = 20_000, 1_000_000
_VALUES = 1_000


@dataclass(frozen=True)
class Column:
    """A column of the rows read.

    Args:
        kind: `int`, `float` or `bytes`, as TFX's ExampleGen infers it of these rows; empty if all cells are.
        missing: The number of empty cells.
        distinct: The number of different values.
        values: Value -> how often; of more than 1,000, the most frequent ones.
        lowest: The lowest finite number; None for words.
        highest: The highest one.
        length: The most values that a row has.
    """

    name: str
    kind: str
    missing: int
    distinct: int
    values: Mapping[str, int]
    lowest: Optional[float] = None
    highest: Optional[float] = None
    length: int = 1


@dataclass(frozen=True)
class TableReading:
    """A table of features, as far as it was read.

    Args:
        place: The file, or the pattern of files.
        rows: The number of rows read; if whole, of all.
        rows_by_split: Of these, if splits have files of their own.
        doubts: What may be wrong -> the columns, each with the first cell that shows it.
        key: Of its format, in FORMATS.
    """

    place: str
    files: tuple[Path, ...]
    columns: tuple[Column, ...]
    rows: int
    is_whole: bool
    rows_by_split: Mapping[str, int] = field(default_factory=dict)
    doubts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    key: str = "csv"

    def column(self, name: str) -> Optional[Column]:
        """Returns the column of a name; None if there is none."""
        return next((column for column in self.columns if column.name == name), None)

    def notes(self) -> Iterator[str]:
        """Yields what is doubtful, but may be right."""
        yield from (f"{why}: {listed(found)}" for why, found in self.doubts.items())


def read_table(
    pattern: str,
    files_by_split: Optional[Mapping[str, str]] = None,
    label: str = "",
    key: str = "csv",
    may_lack: bool = False,
) -> TableReading:
    """Reads a table.

    Args:
        pattern: A file, a folder of them, or a pattern as of `glob`.
        files_by_split: A pattern of each split's files, relative to the folder; none if rows are split by their hash.
        label: A column; empty if it is not known.
        key: Of the files' format, in FORMATS.
        may_lack: Whether the label may be no column: the preprocessing makes it.

    Raises:
        DataError: TFX's components would fail, or silently take something else for the data.
    """
    paths = _find_files(pattern, files_by_split or {}, FORMATS[key])
    read: list[TableFile] = []
    unread = list(dict.fromkeys(path for found in paths.values() for path in found))
    place = pattern if len(unread) > 1 else str(unread[0])
    rows, cells = _ROWS, _CELLS
    while unread:
        file = _read_file(FORMATS[key], unread[0], rows // len(unread), cells // len(unread))
        FORMATS[key].check(file, (*read, file)[0])
        read.append(file)
        unread.pop(0)
        rows, cells = rows - len(file.rows), cells - len(file.rows) * len(file.names)
    files = {file.path: file for file in unite(read)}
    splits = {split: [files[path] for path in found] for split, found in paths.items()}
    counts = {split: sum(len(file.rows) for file in found) for split, found in splits.items()}
    count, is_whole = _ROWS - rows, all(file.is_whole for file in files.values())
    for split, held in counts.items():
        if held == 0 or count == 1:
            none = "names only" if file.kinds is None else "no row"
            what = f"{splits[split][0].path} has {'one row only' if held else none}"
            raise DataError(one_line(what), expected="rows to train with, and others to evaluate with", todo="add them")
    names = next(iter(files.values())).names
    columns = [Cells(name, index, [*files.values()]) for index, name in enumerate(names)]
    single = [column for column in columns if column.length == 1]
    refuse_kinds(single, splits)
    if label and not (may_lack and label not in names):
        refuse_label(columns, label, place, is_whole)
    return TableReading(
        place,
        files=tuple(files),
        columns=tuple(map(_to_column, columns)),
        rows=count,
        is_whole=is_whole,
        rows_by_split=counts if files_by_split else {},
        doubts=find_doubts(single, splits, label),
        key=key,
    )


def scan_label(reading: TableReading, label: str, are_classes: bool) -> set[str]:
    """Reads a label in all rows, not only in the first ones; returns its values if they are classes.

    Raises:
        DataError: A row has none, or there are too many classes.
    """
    found: set[str] = set()
    form = FORMATS[reading.key]
    for path in reading.files:
        for number, cell in form.scan(path, label):
            if not cell:
                what = f"{form.UNIT} {number:,} of {path} has no value of the label {label}"
                raise DataError(one_line(what), expected="one in each row", todo="fill it in, or remove the row")
            if are_classes:
                found.add(cell)
                if len(found) > _VALUES:
                    what = f"the label {label} of {path} holds more than {_VALUES:,} different values"
                    todo = "name another label, or declare data.task: regression"
                    raise DataError(one_line(what), expected="the classes to predict", todo=todo)
    return found


def first_rows(reading: TableReading, count: int) -> list[dict[str, Cell]]:
    """Reads so many rows at most, of the first file."""
    file = FORMATS[reading.key].read_file(reading.files[0], count, _CELLS)
    return [dict(zip(file.names, row)) for row in file.rows]


def find_features(place: str) -> str:
    """Returns the key in FORMATS of a file whose columns name no images, or of a pattern or folder of such files."""
    if os.path.isdir(place):
        held = [(os.path.join(place, name), is_folder) for name, is_folder in entries(place) if is_visible(name)]
        if any(is_folder or path.lower().endswith(SUFFIXES) for path, is_folder in held) or is_prepared(Path(place)):
            return ""
        tables = {path: key for path, _ in held for key in FORMATS if _is_named(path, key)}
        keys = {*tables.values()} if all(map(find_features, tables)) else set()
        return keys.pop() if len(keys) == 1 else ""
    key = next((key for key in FORMATS if _is_named(place, key)), "")
    if not os.path.isfile(place):
        return key if glob.has_magic(place) else ""
    return key if key and FORMATS[key].holds_features(Path(place)) else ""


def _is_named(path: str, key: str) -> bool:
    return fnmatch.fnmatch(os.path.basename(path).lower(), FORMATS[key].PATTERN)


def _to_column(cells: Cells) -> Column:
    if cells.length > 1:
        return Column(cells.name, cells.kind, cells.all[""], 0, {}, length=cells.length)
    values = {cell: count for cell, count in cells.all.items() if cell}
    read = {INT: int, FLOAT: float}.get(cells.kind)
    numbers = [number for number in map(read, values) if math.isfinite(number)] if read else []
    most = dict(heapq.nlargest(_VALUES, values.items(), key=lambda item: item[1]))
    low, high = min(numbers, default=None), max(numbers, default=None)
    return Column(cells.name, cells.kind, cells.all[""], len(values), most, low, high)


def _read_file(form: Any, path: Path, rows: int, cells: int) -> TableFile:
    try:
        return form.read_file(path, rows, cells)  # type: ignore[no-any-return]
    except OSError as error:
        kind = DataNotFoundError if isinstance(error, FileNotFoundError) else DataError
        what = one_line(f"{path} cannot be read: {error.strerror}")
        raise kind(what, expected=f"a {form.NAME} file", todo="correct the path, or remove what is there") from error


def _find_files(pattern: str, by_split: Mapping[str, str], form: Any) -> dict[str, list[Path]]:
    """Returns the files of each split; all under an empty name if no split has files of its own."""
    folder, last = (pattern, form.PATTERN) if os.path.isdir(pattern) else os.path.split(pattern)
    found = {}
    for split, each in (by_split or {"": last}).items():
        path = os.path.join(folder, each)
        if not (paths := _match(path)):
            held = [name for name, _ in entries(folder)] if os.path.isdir(folder) else []
            raise DataNotFoundError(
                one_line(f"there is no file {path}" + (f", of the split {split}" if split else "")),
                expected=f"a {form.NAME} file, a folder of {form.PATTERN}, or a pattern such as data/{form.PATTERN}",
                todo=f"correct it; {folder} holds {listed(held)}" if held else "correct it",
            )
        found[split] = paths
    return found


def _match(pattern: str) -> list[Path]:
    """Returns what TFX's ExampleGen reads for a pattern: hidden files as well."""
    if os.path.exists(pattern):
        return [Path(pattern)]
    if len(days := split_pattern(pattern)) > 1:
        return [path for day in days for path in _match(day)]
    folder, last = os.path.split(pattern)
    folders = filter(os.path.isdir, glob.glob(folder or os.curdir))
    return sorted(Path(each, name) for each in folders for name in fnmatch.filter(os.listdir(each), last))
