"""The first rows of a CSV file of features, as TFX's CsvExampleGen takes it apart, and why it would not, or wrongly."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Union

from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.base.files import open_regular
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.user_data.read import PATHS, refuse_encoding
from tfx_estimator.pipeline.user_data.table_file import BYTES, DATE, TableFile, kind_of

NAME, PATTERN, UNIT = "CSV", "*.csv", "line"
_SEPARATORS = {";": "semicolons", "\t": "tabs"}
# A quote that is not closed takes in all lines up to the next one.
_MAX_LINES = 10_000
_HEAD_BYTES = 1 << 16
# A file of this machine, or at an address.
_Path = Union[str, Path]


def read_file(path: Path, rows: int, cells: int) -> TableFile:
    """Reads the line of names, and so many rows or cells at most, but one row.

    Raises:
        DataError: CsvExampleGen would fail, or give columns other names, or cells to other columns.
    """
    with open_regular(path) as file:
        names, found_rows = read(path, file)
        found = TableFile(path, names, [], [], False)
        most = max(min(rows, cells // len(names)), 1)
        for line, row in found_rows:
            if len(found.rows) == most:
                return found
            found.lines.append(line)
            found.rows.append(row)
    return replace(found, is_whole=True)


def read(path: _Path, file: BinaryIO) -> tuple[tuple[str, ...], Iterator[tuple[int, list[str]]]]:
    """Returns the names of the columns, and the first line and the cells of each row, read one by one.

    Raises:
        DataError: CsvExampleGen would fail, or give columns other names, or cells to other columns.
    """
    names = _read_names(path, file.readline())
    return names, _read_rows(path, file, names)


def check(file: TableFile, first: TableFile) -> None:
    """Checks the names of a file's columns, also against those of the first file.

    Raises:
        DataError: They are others; or the line is data, occurs again, or does not give each column a name of its own.
    """
    if file.names != first.names:
        raise refuse_names(file.path, file.names, first.path, first.names)
    names, place, expected = file.names, f"line 1 of {file.path}", "a line of names, each of another column"
    what = ""
    # pandas writes 0, 1, 2, … for columns without names.
    numbered = len(names) > 2 and names == tuple(map(str, range(len(names))))
    again = next((number for number, row in enumerate(file.rows) if tuple(row) == names), None)
    if again is not None and all(kind_of(name) == BYTES for name in names):
        what, todo = f"{file.place(again)} has the names of the columns again", "remove the line"
    elif file.rows and any(names) and not numbered and all(map(_is_data, names, zip(*file.rows))):
        what, todo = f"{place} has no names, but data: {_shorten(','.join(names))}", "put a line of names above it"
    elif "" in names:
        what = f"{place} has no name for column {names.index('') + 1:,} of {len(names):,}"
        todo = "name it, or remove the column; pandas leaves out its index by to_csv(…, index=False)"
    elif len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        what, todo = f"{place} has a name twice, and CsvExampleGen only one of the columns: {twice}", "rename one"
    if what:
        raise DataError(one_line(what), expected=expected, todo=todo)


def scan(path: Path, name: str) -> Iterator[tuple[int, str]]:
    """Yields the line and the cell of a column in all rows; a cell that is not there is empty."""
    with open_regular(path) as file:
        rows = csv.reader(line.decode(errors="replace") for line in file)
        index = next(rows).index(name)
        for row in rows:
            if row:
                yield rows.line_num, row[index] if len(row) > index else ""


def holds_features(path: Path) -> bool:
    """Returns whether no column is one of images."""
    with open_regular(path) as file:
        head = file.readline(_HEAD_BYTES).decode("utf-8-sig", "replace")
    return not {re.sub(r'[\s"\0]', "", name).lower() for name in re.split("[,;\t]", head)}.intersection(PATHS)


def _read_names(path: _Path, head: bytes) -> tuple[str, ...]:
    """Returns the names of the columns: CsvExampleGen cuts the line at each comma, within quotes as well."""
    text = _decode(path, 1, head).strip()
    what, expected = "", "a line of names, with commas between them"
    if not text:
        what, todo = f"{path} is empty" if not head else f"line 1 of {path} is empty", "write it again, or remove it"
    elif text.startswith("\ufeff"):
        what = f"{path} begins with a byte-order mark, which CsvExampleGen takes for a part of the first column's name"
        todo = "remove it: `tail -c +4 OLD > NEW`"
    elif "," not in text and (mark := next((mark for mark in _SEPARATORS if mark in text), "")):
        what = f"line 1 of {path} has {_SEPARATORS[mark]}, not commas: CsvExampleGen takes it for one column"
        todo = f"write it again, as pandas does: read_csv(OLD, sep={mark!r}, decimal=',').to_csv(NEW, index=False)"
    elif '"' in text:
        what = f"line 1 of {path} has quotes, which CsvExampleGen takes for a part of the names: {_shorten(text)}"
        todo = "remove them, and commas within names: `sed '1s/\"//g' OLD > NEW`"
    if what:
        raise DataError(one_line(what), expected=expected, todo=todo)
    return tuple(text.split(","))


def _read_rows(path: _Path, file: BinaryIO, names: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    """Yields the first line, and the cells, of each row; CsvExampleGen joins lines until their quotes are even."""
    first, parts, is_open = 2, [], False
    for number, line in enumerate(file, 2):
        parts.append(_decode(path, number, line))
        is_open ^= parts[-1].count('"') % 2 == 1
        if is_open and len(parts) < _MAX_LINES:
            continue
        if row := _cut(path, first, "".join(parts)):
            if len(row) != len(names):
                raise _refuse_ragged(path, names, first, row)
            yield first, row
        first, parts = number + 1, []
    if parts:
        _cut(path, first, "".join(parts))


def _cut(path: _Path, first: int, text: str) -> list[str]:
    """Returns a row's cells; CsvExampleGen reads on for ever within a quote that is still open."""
    try:
        return next(csv.reader(_once(text)))
    except csv.Error as error:
        raise DataError(
            one_line(f"line {first:,} of {path} cannot be cut into cells: {error}"),
            expected='quotes around a whole cell, and doubled within it: "a 5"" pipe"',
            todo="correct the line",
        ) from error


def _once(text: str) -> Iterator[str]:
    if text.count('"') % 2 == 0:
        yield text
    raise csv.Error("a quote is not closed")


def _refuse_ragged(path: _Path, names: tuple[str, ...], line: int, row: list[str]) -> DataError:
    more = len(row) > len(names)
    return DataError(
        one_line(f"line {line:,} of {path} has {len(row):,} cells: {_shorten(','.join(row))}"),
        expected=f"{len(names):,}, as the line of names has",
        todo='put cells with commas into quotes, as "1,5"' if more else "add the commas of empty cells, or remove it",
    )


def _decode(path: _Path, number: int, line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise refuse_encoding(error, f"line {number:,} of {path}") from error


def _is_data(name: str, cells: tuple[str, ...]) -> bool:
    """Returns whether a name is none, but the first cell of its column."""
    pair = name, cells[0]
    return not name or name in cells or BYTES not in map(kind_of, pair) or all(map(DATE.fullmatch, pair))


def _shorten(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def refuse_names(path: _Path, names: tuple[str, ...], first: _Path, expected: tuple[str, ...]) -> DataError:
    """Returns the error of a file whose columns are not those of the first one."""
    pairs = enumerate(zip((*names, "nothing"), (*expected, "nothing")), 1)
    number, (one, other) = next(pair for pair in pairs if pair[1][0] != pair[1][1])
    return DataError(
        one_line(f"line 1 of {path} has {one} for column {number:,}, where {first} has {other}"),
        expected="the same names in the same order",
        todo="correct the line, or leave out the file",
    )
