"""The first rows of a file of features, whatever its format, and the kinds of its cells."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional, Union

from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.base.text import one_line

# The kinds of cells, and so of columns, in the order in which one takes in those before it.
EMPTY, INT, FLOAT, BYTES = "", "int", "float", "bytes"
KINDS = (EMPTY, INT, FLOAT, BYTES)
WORDS = {INT: "whole numbers", FLOAT: "numbers with a point", BYTES: "words"}
DATE = re.compile(r"(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3(\d{4}|\d\d))([ T].*)?")
_INT64 = 1 << 63
_FLOAT = struct.Struct("<f")
_FORMS = ("%.6g", "%.7g", "%.8g", "%.9g")

# As text, empty if it is missing; several values are a tuple of two or more.
Cell = Union[str, tuple[str, ...]]


@dataclass(frozen=True)
class TableFile:
    """The first rows of a file, each with its line or number; whole if there are no more.

    Args:
        kinds: The kind of each column, if the file tells it; None if its cells do.
        unit: What a row is called.
    """

    path: Path
    names: tuple[str, ...]
    rows: list[Sequence[Cell]]
    lines: list[int]
    is_whole: bool
    kinds: Optional[Mapping[str, str]] = None
    unit: str = "line"

    def where(self, row: int) -> str:
        """Returns a row's line or number, for a message."""
        return f"{self.unit} {self.lines[row]:,}"

    def place(self, row: int) -> str:
        """Returns where a row is, for a message."""
        return f"{self.where(row)} of {self.path}"


def kind_of(cell: str) -> str:
    """Returns a cell's kind, as tfx_bsl's ColumnTypeInferrer does: of the cell's bytes, by Python's int and float."""
    text = cell.encode()
    try:
        return (INT if -_INT64 <= int(text) < _INT64 else BYTES) if text else EMPTY
    except ValueError:
        try:
            float(text)
        except ValueError:
            return BYTES
        return FLOAT


def to_cell(values: Sequence[str]) -> Cell:
    """Returns the cell of the values of a row."""
    return tuple(values) if len(values) > 1 else values[0] if values else ""


def to_text(value: bytes) -> str:
    """Returns a word, readable if it is not in UTF-8."""
    return value.decode(errors="backslashreplace")


def shortest(value: float) -> str:
    """Returns the fewest digits that tell a float of 32 bits from all others."""
    packed = _FLOAT.pack(value)
    for form in _FORMS:
        if _FLOAT.pack(float(text := form % value)) == packed:
            break
    return text


def unite(files: Sequence[TableFile]) -> list[TableFile]:
    """Gives files that tell kinds the columns of all, in one order.

    Raises:
        DataError: A column is of one kind in a file, and of another in a later one.
    """
    known: dict[str, tuple[str, TableFile]] = {}
    for file in files:
        for name, kind in (file.kinds or {}).items():
            other, first = known.setdefault(name, (kind, file))
            if other == EMPTY:
                known[name] = kind, file
            elif kind not in (EMPTY, other):
                raise DataError(
                    one_line(f"column {name} of {file.path} holds {WORDS[kind]}, but of {first.path} {WORDS[other]}"),
                    expected="one kind everywhere",
                    todo="write the column with one type, or leave out the file",
                )
    if not known:
        return [*files]
    names, kinds = tuple(known), {name: kind for name, (kind, _) in known.items()}
    return [replace(file, names=names, rows=_in_order(file, names), kinds=kinds) for file in files]


def _in_order(file: TableFile, names: tuple[str, ...]) -> list[Sequence[Cell]]:
    if file.names == names:
        return file.rows
    # One beyond the row's end is a cell that is missing.
    places = [file.names.index(name) if name in file.names else len(file.names) for name in names]
    return [[(*row, "")[place] for place in places] for row in file.rows]
