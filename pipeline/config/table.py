"""A declared table of features: what its label asks for, and what is checked before anything starts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.config.data import DataSection, Splits, Table
from tfx_estimator.pipeline.config.known import TABLE_NAMES, expand, names_of
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.problems import Problem, nearest
from tfx_estimator.pipeline.config.task import BINARY, CLASSES, REGRESSION, Task, task_of
from tfx_estimator.pipeline.user_data import schema
from tfx_estimator.pipeline.user_data.spans import wrong_tokens
from tfx_estimator.pipeline.user_data.table import TableReading, read_table, scan_label

_RAW = expand("transform.preprocessing_fn", "raw")
_BUILT_IN = names_of("transform.preprocessing_fn", of_table=True).values()

if TYPE_CHECKING:
    from tfx_estimator.pipeline.config.declaration import Declaration
    from tfx_estimator.pipeline.config.rules.rule import Case


def read_declared(data: DataSection) -> TableReading:
    """Reads the table of a `data` section.

    Raises:
        DataError: It cannot be read, or TFX would read it wrongly.
    """
    table = data.table()
    return read_table(*table.read(), data.label or "", table.key, may_lack=True)


def check_kept(data: DataSection, place: str) -> None:
    """Checks the columns of a table against the schema that earlier runs of its pipeline kept, if they did.

    Raises:
        DataError: One is gone, new or of another kind.
    """
    if data.is_table and not data.schema and os.path.exists(place) and is_here(data):
        schema.check_kept(place, read_declared(data))


def is_here(data: DataSection, travels: bool = False) -> bool:
    """Returns whether the table is on this machine; `travels`: the pipeline may run on others."""
    return not is_address(data.table_path) and not (travels and not os.path.exists(data.table().folder))


def task_of_label(data: DataSection, reading: TableReading) -> str:
    """Returns what the label asks for; empty if only a declared `task` would tell."""
    column = reading.column(data.label or "")
    return data.task or (task_of(column) if column else "")


def kind_of(data: DataSection) -> str:
    """Returns what the label of a checked `data` section asks for."""
    return data.task or task_of_label(data, read_declared(data))


def task(declaration: Declaration, kept: str = "") -> Task:
    """Returns the task of a checked declaration, with the classes' names if the built-in preprocessing orders them.

    Args:
        kept: Where the pipeline keeps the table's schema: a class of earlier rows may be missing in these.
    """
    data = declaration.data
    reading = read_declared(data) if data.task is None or is_here(data, travels=True) else None
    kind = data.task or (task_of_label(data, reading) if reading else "")
    column = reading.column(data.label or "") if reading else None
    names: tuple[str, ...] = ()
    if column and reading and declaration.transform.of_table().target in _BUILT_IN:
        are_classes = kind != REGRESSION
        values = {*column.values} if reading.is_whole else scan_label(reading, column.name, are_classes)
        if are_classes and column.kind != "bytes" and not data.schema:
            schema.check_classes(kept, reading, column.name, values)
        values |= schema.classes_of(data.schema or kept, column.name)
        names = _in_order(values, column.kind != "bytes") if are_classes else ()
        kind = CLASSES if data.task is None and len(names) > 2 else kind
    if kind == BINARY and not names:
        names = ("0", "1")
    return Task(kind, data.label or "", names, weight=data.weight or "", preprocessed=True)


def _in_order(values: Iterable[str], are_numbers: bool) -> tuple[str, ...]:
    """Returns the names of classes in the order of their labels; of numbers, 1 and 1.0 are one class."""
    if not are_numbers:
        return tuple(sorted(values))
    return tuple(f"{each:.15g}" for each in sorted({*map(float, values)}))


def columns_of(case: Case) -> list[str]:
    """Returns the names of the table's columns; none if it cannot be read."""
    return [column.name for column in case.table.columns] if isinstance(case.table, TableReading) else []


def check_table(case: Case) -> Iterator[Problem]:
    """Checks a declared table, and that the user's code is there for it."""
    data, reading = case.data, case.table
    key, *others = data.table_keys
    for other in [*others, *(["dataset"] if data.dataset else [])]:
        what = f"data.{key} is declared, too"
        yield Problem(f"data.{other}", what, "one of the two", "remove one", value=getattr(data, other))
    if wrong := _wrong_days(data.table()):
        fit = "one {SPAN}, or one {YYYY}, {MM} and {DD}; and {VERSION} of days that are written again"
        todo = "see https://www.tensorflow.org/tfx/guide/examplegen#span"
        yield Problem(f"data.{key}", wrong, fit, todo, value=data.table_path)
    elif isinstance(reading, DataError):
        yield Problem(f"data.{key}", reading.what, reading.expected, reading.todo, value=data.table_path)
    elif not data.label:
        yield Problem("data.label", "this key is missing", "the column to predict", "name it: label: COLUMN")
    elif reading is not None:
        target = case.transform.of_table().target
        yield from _columns(data, reading, target in _BUILT_IN)
        if target == _RAW and case.trainer.model in TABLE_NAMES["trainer.model"]:
            what = f"{case.trainer.model} takes words as by_schema numbers them, and numbers as it scales them"
            yield Problem("transform.preprocessing_fn", what, "by_schema", "remove this line", value="raw")
    if data.schema and not is_address(data.schema) and not os.path.isfile(data.schema):
        yield Problem("data.schema", "there is no such file", "a schema.pbtxt", "check the path", value=data.schema)
    if reading is None and not (data.schema and data.task):
        what = "a table that is not on this machine is not read here"
        yield Problem(f"data.{key}", what, "data.schema and data.task", "declare both", value=data.table_path)
    yield from _splits(data.splits)
    if data.spans.last > 1 and (case.target or not is_here(data)):
        what = "the days of a table that is not on this machine are not known here: a step reads the newest one"
        yield Problem("data.spans.last", what, "1", "leave it out", value=str(data.spans.last))
    if case.evaluator.min_accuracy and isinstance(reading, TableReading) and task_of_label(data, reading) == REGRESSION:
        todo = "remove it; or add to evaluator.metrics: {name: MeanAbsoluteError, threshold: {upper: VALUE}}"
        yield Problem("evaluator.min_accuracy", "a regression has no accuracy", "", todo)


def _wrong_days(table: Table) -> str:
    patterns = table.patterns.values() or [table.pattern]
    return next(filter(None, map(wrong_tokens, patterns)), "") if table.has_spans else ""


def _columns(data: DataSection, reading: TableReading, is_built_in: bool) -> Iterator[Problem]:
    names = [column.name for column in reading.columns]
    is_column = data.label in names
    if not task_of_label(data, reading) or (is_built_in and not is_column):
        near = nearest(data.label or "", names)
        what = "its values do not tell the task" if is_column else f"there is no column `{data.label}`"
        todo = "declare data.task: binary, classes or regression"
        if not is_column:
            todo = f"{f'did you mean `{near}`? ' if near else ''}if your preprocessing_fn makes it, {todo}"
        yield Problem("data.label", what, "a column", todo, value=data.label or "")
    for column in reading.columns if is_built_in else ():
        if column.length > 1:
            what = f"column {column.name} has up to {column.length:,} values a row"
            todo = "declare a transform.preprocessing_fn or module_file that does, or leave the column out"
            yield Problem(f"data.{reading.key}", what, "one value or none", todo, value=data.table_path)
    # The user's preprocessing_fn may make the weight.
    columns = {"weight": data.weight if is_built_in else None, "split_by": data.split_by}
    for key, name in columns.items():
        if name is not None and name not in names:
            near = nearest(name, names)
            todo = f"did you mean `{near}`?" if near else "name a column"
            yield Problem(f"data.{key}", f"there is no column `{name}`", "a column", todo, value=name)
    by = reading.column(data.split_by or "")
    if by and (by.kind == "float" or by.missing or by.length > 1):
        what = f"{by.missing:,} of its cells are empty" if by.missing else "it holds fractions, or several values a row"
        yield Problem("data.split_by", what, "whole numbers or words in every row", "name another", value=by.name)


def _splits(splits: Splits) -> Iterator[Problem]:
    given = {name: each for name, each in splits.dict().items() if each is not None}
    if splits == Splits():
        return
    kinds = {type(each) for each in given.values()}
    wrong = [each for each in given.values() if isinstance(each, int) and each < 1]
    if len(kinds) > 1 or wrong or {"train", "eval"} - {*given}:
        what = "these are neither shares of the rows nor patterns of files, for train and eval"
        yield Problem(
            "data.splits",
            what,
            '{train: 2, eval: 1}, or {train: "train-*.csv", eval: "eval-*.csv"}',
            "write one of the two",
        )
