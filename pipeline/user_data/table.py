"""A CSV table of features, read before Beam reads it: its columns as CsvExampleGen infers them, and what is doubtful.

Small tables are read as a whole; of others, the first rows of each file.
"""

from __future__ import annotations

import csv
import fnmatch
import glob
import heapq
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from tfx_estimator.pipeline.base.errors import DataError, DataNotFoundError
from tfx_estimator.pipeline.base.files import open_regular
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.user_data.csv_file import FLOAT, INT, CsvFile, read_file, refuse_names
from tfx_estimator.pipeline.user_data.names import SUFFIXES, entries, is_visible
from tfx_estimator.pipeline.user_data.read import PATHS
from tfx_estimator.pipeline.user_data.reading import listed
from tfx_estimator.pipeline.user_data.spans import split_pattern
from tfx_estimator.pipeline.user_data.table_checks import Cells, find_doubts, refuse_kinds, refuse_label

# The most that is read of all files.
_ROWS, _CELLS = 20_000, 1_000_000
_VALUES = 1_000
_HEAD_BYTES = 1 << 16


@dataclass(frozen=True)
class Column:
    """A column of the rows read.

    Args:
        kind: `int`, `float` or `bytes`, as CsvExampleGen infers it of these rows; empty if all cells are.
        missing: The number of empty cells.
        distinct: The number of different values.
        values: Value -> how often; of more than 1,000, the most frequent ones.
        lowest: The lowest finite number; None for words.
        highest: The highest one.
    """

    name: str
    kind: str
    missing: int
    distinct: int
    values: Mapping[str, int]
    lowest: Optional[float] = None
    highest: Optional[float] = None


@dataclass(frozen=True)
class TableReading:
    """A table of features, as far as it was read.

    Args:
        place: The file, or the pattern of files.
        rows: The number of rows read; if whole, of all.
        rows_by_split: Of these, if splits have files of their own.
        doubts: What may be wrong -> the columns, each with the first cell that shows it.
    """

    place: str
    files: tuple[Path, ...]
    columns: tuple[Column, ...]
    rows: int
    is_whole: bool
    rows_by_split: Mapping[str, int] = field(default_factory=dict)
    doubts: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def column(self, name: str) -> Optional[Column]:
        """Returns the column of a name; None if there is none."""
        return next((column for column in self.columns if column.name == name), None)

    def notes(self) -> Iterator[str]:
        """Yields what is doubtful, but may be right."""
        yield from (f"{why}: {listed(found)}" for why, found in self.doubts.items())


def read_table(pattern: str, files_by_split: Optional[Mapping[str, str]] = None, label: str = "") -> TableReading:
    """Reads a table.

    Args:
        pattern: A CSV file, a folder of them, or a pattern as of `glob`.
        files_by_split: A pattern of each split's files, relative to the folder; none if rows are split by their hash.
        label: A column; empty if it is not known, or made by the preprocessing.

    Raises:
        DataError: TFX's components would fail, or silently take something else for the data.
    """
    paths = _find_files(pattern, files_by_split or {})
    files: dict[Path, CsvFile] = {}
    unread = list(dict.fromkeys(path for found in paths.values() for path in found))
    place = pattern if len(unread) > 1 else str(unread[0])
    rows, cells = _ROWS, _CELLS
    while unread:
        file = read_file(unread[0], rows // len(unread), cells // len(unread))
        if files and (first := next(iter(files.values()))).names != file.names:
            raise _refuse_header(file, first)
        refuse_names(file)
        files[unread.pop(0)] = file
        rows, cells = rows - len(file.rows), cells - len(file.rows) * len(file.names)
    splits = {split: [files[path] for path in found] for split, found in paths.items()}
    counts = {split: sum(len(file.rows) for file in found) for split, found in splits.items()}
    count, is_whole = _ROWS - rows, all(file.is_whole for file in files.values())
    for split, held in counts.items():
        if held == 0 or count == 1:
            what = f"{splits[split][0].path} has {'one row' if held else 'names'} only"
            raise DataError(one_line(what), expected="rows to train with, and others to evaluate with", todo="add them")
    columns = [Cells(name, index, [*files.values()]) for index, name in enumerate(file.names)]
    refuse_kinds(columns, splits)
    if label:
        refuse_label(columns, label, place, is_whole)
    return TableReading(
        place,
        files=tuple(files),
        columns=tuple(map(_to_column, columns)),
        rows=count,
        is_whole=is_whole,
        rows_by_split=counts if files_by_split else {},
        doubts=find_doubts(columns, splits, label),
    )


def scan_label(reading: TableReading, label: str, are_classes: bool) -> set[str]:
    """Reads a label in all rows, not only in the first ones; returns its values if they are classes.

    Raises:
        DataError: A row has none, or there are too many classes.
    """
    found: set[str] = set()
    for path in reading.files:
        with open_regular(path) as file:
            rows = csv.reader(line.decode(errors="replace") for line in file)
            index = next(rows).index(label)
            for row in rows:
                if row and not (len(row) > index and row[index]):
                    what = f"line {rows.line_num:,} of {path} has no value of the label {label}"
                    raise DataError(one_line(what), expected="one in each row", todo="fill it in, or remove the row")
                if row and are_classes:
                    found.add(row[index])
                    if len(found) > _VALUES:
                        what = f"the label {label} of {path} holds more than {_VALUES:,} different values"
                        todo = "name another label, or declare data.task: regression"
                        raise DataError(one_line(what), expected="the classes to predict", todo=todo)
    return found


def holds_features(place: str) -> bool:
    """Returns whether this is a CSV file whose columns name no images, or a pattern or folder of such files."""
    if os.path.isdir(place):
        held = [(os.path.join(place, name), is_folder) for name, is_folder in entries(place) if is_visible(name)]
        tables = [path for path, _ in held if path.lower().endswith(".csv")]
        no_images = not any(is_folder or path.lower().endswith(SUFFIXES) for path, is_folder in held)
        return no_images and tables != [] and all(map(holds_features, tables))
    if not (place.lower().endswith(".csv") and os.path.isfile(place)):
        return place.lower().endswith(".csv") and glob.has_magic(place)
    with open_regular(Path(place)) as file:
        head = file.readline(_HEAD_BYTES).decode("utf-8-sig", "replace")
    return not {re.sub(r'[\s"\0]', "", name).lower() for name in re.split("[,;\t]", head)}.intersection(PATHS)


def _to_column(cells: Cells) -> Column:
    values = {cell: count for cell, count in cells.all.items() if cell}
    read = {INT: int, FLOAT: float}.get(cells.kind)
    numbers = [number for number in map(read, values) if math.isfinite(number)] if read else []
    most = dict(heapq.nlargest(_VALUES, values.items(), key=lambda item: item[1]))
    low, high = min(numbers, default=None), max(numbers, default=None)
    return Column(cells.name, cells.kind, cells.all[""], len(values), most, low, high)


def _find_files(pattern: str, by_split: Mapping[str, str]) -> dict[str, list[Path]]:
    """Returns the files of each split; all under an empty name if no split has files of its own."""
    folder, last = (pattern, "*.csv") if os.path.isdir(pattern) else os.path.split(pattern)
    found = {}
    for split, each in (by_split or {"": last}).items():
        path = os.path.join(folder, each)
        if not (paths := _match(path)):
            held = [name for name, _ in entries(folder)] if os.path.isdir(folder) else []
            raise DataNotFoundError(
                one_line(f"there is no file {path}" + (f", of the split {split}" if split else "")),
                expected="a CSV file, a folder with files *.csv, or a pattern such as data/*.csv",
                todo=f"correct it; {folder} holds {listed(held)}" if held else "correct it",
            )
        found[split] = paths
    return found


def _match(pattern: str) -> list[Path]:
    """Returns what CsvExampleGen reads for a pattern: hidden files as well."""
    if os.path.exists(pattern):
        return [Path(pattern)]
    if len(days := split_pattern(pattern)) > 1:
        return [path for day in days for path in _match(day)]
    folder, last = os.path.split(pattern)
    folders = filter(os.path.isdir, glob.glob(folder or os.curdir))
    return sorted(Path(each, name) for each in folders for name in fnmatch.filter(os.listdir(each), last))


def _refuse_header(file: CsvFile, first: CsvFile) -> DataError:
    pairs = enumerate(zip((*file.names, "nothing"), (*first.names, "nothing")), 1)
    number, (one, other) = next(pair for pair in pairs if pair[1][0] != pair[1][1])
    return DataError(
        one_line(f"line 1 of {file.path} has {one} for column {number:,}, where {first.path} has {other}"),
        expected="the same names in the same order",
        todo="correct the line, or leave out the file",
    )
