"""What is wrong or doubtful in the cells of a table of features, which TFX's components would take as they are."""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Optional

from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.user_data.reading import listed
from tfx_estimator.pipeline.user_data.table_file import BYTES, DATE, EMPTY, FLOAT, INT, KINDS, TableFile, kind_of

_NUMBER = re.compile(r"[-+]?\d+([.,]\d+)*")
_ZERO_FIRST = re.compile(r"0\d+")
# What other programs write for a missing value.
_MISSING = ("na", "n/a", "nan", "none", "null", "?")
# With so large a share of numbers, a column's words are mistakes.
_MOST = 0.75
# In fewer rows all values may differ by chance.
_ENOUGH = 50


class Cells:
    """The cells of a column, counted: of all files, and of each."""

    def __init__(self, name: str, index: int, files: Sequence[TableFile]) -> None:
        self.name, self.index, self.files = name, index, files
        self.by_file: list[Counter[Any]] = [Counter(map(itemgetter(index), file.rows)) for file in files]
        # Of a cell with several values, see `length`, most checks know nothing.
        self.all: Counter[Any] = Counter()
        for each in self.by_file:
            self.all.update(each)
        given = next((file.kinds for file in files if file.kinds), None)
        self.has_kinds = given is not None
        self.kinds = {cell: (given[name] if given else kind_of(cell)) if cell else EMPTY for cell in self.all}
        self.kind = self.kind_in(self.all)
        self.length = max((len(cell) for cell in self.all if isinstance(cell, tuple)), default=1)

    def kind_in(self, cells: Collection[str]) -> str:
        """Returns the kind that CsvExampleGen infers if these are all cells."""
        return max((self.kinds[cell] for cell in cells), key=KINDS.index, default=EMPTY)

    def strays(self) -> list[str]:
        """Returns the cells that make words of a column whose other cells are numbers; none if the file tells kinds."""
        if self.has_kinds:
            return []
        numbers = sum(n for cell, n in self.all.items() if self.kinds[cell] in (INT, FLOAT) or _NUMBER.fullmatch(cell))
        words = [cell for cell, kind in self.kinds.items() if kind == BYTES]
        return words if numbers and numbers >= _MOST * (self.all.total() - self.all[""]) else []

    def infinite(self) -> list[str]:
        """Returns the cells that are numbers, but not finite ones."""
        return [cell for cell, kind in self.kinds.items() if kind == FLOAT and not math.isfinite(float(cell))]

    def find(self, cells: Collection[Any], files: Sequence[TableFile] = ()) -> tuple[Any, TableFile, int]:
        """Returns the first of these cells, and its file and row."""
        rows = ((row[self.index], file, number) for file in files or self.files for number, row in enumerate(file.rows))
        return next(found for found in rows if found[0] in cells)


def refuse_kinds(columns: Sequence[Cells], splits: Mapping[str, Sequence[TableFile]]) -> None:
    """Raises a DataError for numbers in one file where another has words, or a split other numbers.

    Each split's kinds are its own, the schema's those of the first: read by it, others give "Feature had wrong type".
    """
    for column in columns:
        kinds = {file.path: column.kind_in(cells) for file, cells in zip(column.files, column.by_file)}
        if len({*kinds.values()}) == 1:
            continue
        words = {cell for cell, kind in column.kinds.items() if kind == BYTES}
        numbers = [file for file in column.files if kinds[file.path] in (INT, FLOAT)]
        worded = [f for f, cells in zip(column.files, column.by_file) if words & {*cells} and {*cells} <= {*words, ""}]
        if numbers and worded:
            raise _refuse_kind(column, words, worded, f"numbers in {numbers[0].path}")
        first, *others = splits
        of = {split: max((kinds[file.path] for file in files), key=KINDS.index) for split, files in splits.items()}
        for split in others if all(file.is_whole for file in column.files) else ():
            # A column without values is one of words to SchemaGen.
            if of[split] not in (EMPTY, of[first] or BYTES):
                cells = {cell for cell, kind in column.kinds.items() if kind == of[split]}
                raise _refuse_kind(
                    column, cells, splits[split], f"{of[first] or 'without a value'} in the split {first}"
                )


def refuse_label(columns: Sequence[Cells], name: str, place: str, is_whole: bool) -> None:
    """Raises a DataError if there is no such label, or none in a row, or one that is no number, or one only."""
    column = next((column for column in columns if column.name == name), None)
    what = ""
    if column is None:
        names = {column.name.strip().lower(): column.name for column in columns}
        near = difflib.get_close_matches(name.strip().lower(), names, n=1)
        what, expected = f"{place} has no column {name}", f"one of its columns: {listed([*names.values()], 30)}"
        todo = f"set data.label to {names[near[0]] if near else 'one of them'}"
    elif column.length > 1:
        what = f"the label {name} of {place} has up to {column.length:,} values a row"
        expected, todo = "one value", "set data.label to another column, or write one value into it"
    elif wrong := [""] if column.all[""] else column.infinite() or [*filter(_is_mistake, column.strays())]:
        cell, file, row = column.find(wrong)
        count = sum(column.all[each] for each in wrong)
        what = f"the label {name} is {cell or 'missing'} in {file.place(row)}; such rows: {count:,}"
        expected = "a label in each row, and finite numbers only if the most are numbers"
        todo = "correct these rows, or leave them out"
    elif len(column.all) == 1 and is_whole:
        what, expected = f"the label {name} of {place} has one value only: {[*column.all].pop()}", "two values or more"
        todo = "add rows of others, or set data.label to another column"
    if what:
        raise DataError(one_line(what), expected=expected, todo=todo)


def find_doubts(columns: Sequence[Cells], splits: Mapping[str, Sequence[TableFile]], name: str) -> dict[str, list[str]]:
    """Returns what may be wrong -> the columns, each with the first cell that shows it."""
    doubts: dict[str, list[str]] = {}
    label = next((column for column in columns if column.name == name), None)
    for column in columns:
        for why, cells in _doubts(column, label):
            shown = ""
            if cells:
                cell, file, row = column.find(cells)
                count, rows = sum(column.all[each] for each in cells), column.all.total()
                shown = f" ({cell!r} in {file.where(row)} of {file.path.name}; {count:,} of {rows:,} rows)"
            doubts.setdefault(why, []).append(column.name + shown)
    seen: dict[tuple[Any, ...], str] = {}
    for split, files in splits.items() if len(splits) > 1 else ():
        places = {tuple(row): file.place(number) for file in files for number, row in enumerate(file.rows)}
        if again := [row for row in places if row in seen]:
            shown = f"{len(again):,} of {len(places):,} (as {places[again[0]]}, in {seen[again[0]]} as well)"
            doubts[f"different rows of {split} that another split has"] = [shown]
        seen |= dict.fromkeys(places, split)
    return doubts


def _doubts(column: Cells, label: Optional[Cells]) -> Iterator[tuple[str, Collection[str]]]:
    """Yields what may be wrong of a column, and the cells that show it."""
    values = [cell for cell in column.all if cell]
    rows = column.all.total()
    if not values:
        yield "columns without a value in the rows read", ()
    elif strays := column.strays():
        yield "numbers that are read as words, because of some cells", strays
    elif column.kind == BYTES and (absent := list(filter(_is_absent, values))):
        yield "words that often stand for a missing value, which an empty cell is here", absent
    elif column.kind == BYTES and all(map(DATE.fullmatch, values)):
        yield "dates, which a model takes for words", values
    elif column.kind == FLOAT and (infinite := column.infinite()):
        yield "numbers that are not finite", infinite
    elif column.kind == INT and (zeros := [cell for cell in values if _ZERO_FIRST.fullmatch(cell)]):
        yield "numbers that lose their first zeros", zeros
    if column is label:
        if len(values) == 1:
            yield "one label only in the rows read", ()
        if column.kind == INT and {"-1", "0", "1"} == set(values):
            yield "a label below 0 besides 0 and 1: three classes", ["-1"]
        folded = Counter(value.strip().lower() for value in values)
        if column.kind == BYTES and (alike := [each for each in values if folded[each.strip().lower()] > 1]):
            yield f"classes that differ in case or spaces only: {listed(alike)}", alike[1:]
    elif column.kind in (INT, BYTES) and len(values) == rows >= _ENOUGH:
        yield "another value in each row, as an id has", ()
    elif label and 1 < len(column.all) == len(label.all):
        pairs = {(row[column.index], row[label.index]) for file in column.files for row in file.rows}
        # Two columns of measurements without a value twice tell nothing of each other.
        is_class = 2 * len(label.all) <= rows
        if len(pairs) == len(label.all) and (is_class or all(one == other for one, other in pairs)):
            yield "columns that tell the label", ()


def _is_absent(cell: str) -> bool:
    return cell.strip().lower() in _MISSING


def _is_mistake(cell: str) -> bool:
    return _is_absent(cell) or bool(_NUMBER.fullmatch(cell))


def _refuse_kind(column: Cells, cells: Collection[str], files: Sequence[TableFile], other: str) -> DataError:
    cell, file, row = column.find(cells, files)
    return DataError(
        one_line(f"column {column.name} is {cell!r} in {file.place(row)}, but {other}"),
        expected="one kind everywhere: CsvExampleGen makes words of all, and Transform takes no other in a split",
        todo="correct the cells: 1.0, not 1, if others have points; put words that are right into the same file",
    )
