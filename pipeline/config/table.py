"""A declared table of features: what its label asks for, and what is checked before anything starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.config.data import DataSection, Splits
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.problems import Problem, nearest
from tfx_estimator.pipeline.config.task import Task
from tfx_estimator.pipeline.user_data.table import TableReading, read_table, task_of

if TYPE_CHECKING:
    from tfx_estimator.pipeline.config.rules.rule import Case

_CODE = "the dotted name of your function, or a module file"


def read_declared(data: DataSection) -> TableReading:
    """Reads the table of a `data` section.

    Raises:
        DataError: It cannot be read, or TFX would read it wrongly.
    """
    table = data.table()
    patterns = {name: os.path.join(table.folder, pattern) for name, pattern in table.patterns.items()}
    return read_table(os.path.join(table.folder, table.pattern), patterns, data.label or "")


def is_here(data: DataSection, travels: bool) -> bool:
    """Returns whether the table is on this machine; `travels`: the pipeline may run on others."""
    return not is_address(data.csv or "") and not (travels and not os.path.exists(data.table().folder))


def task_of_label(data: DataSection, reading: TableReading) -> str:
    """Returns what the label asks for; empty if only a declared `task` would tell."""
    column = reading.column(data.label or "")
    return data.task or (task_of(column) if column else "")


def task(data: DataSection) -> Task:
    """Returns the task of a checked `data` section."""
    kind = data.task or task_of_label(data, read_declared(data))
    return Task(kind, data.label or "", weight=data.weight or "", preprocessed=True)


def check_table(case: Case) -> Iterator[Problem]:
    """Checks a declared table, and that the user's code is there for it."""
    data, reading = case.data, case.table
    if data.dataset:
        yield Problem("data.dataset", "data.csv is declared, too", "one of the two", "remove one", value=data.dataset)
    if isinstance(reading, DataError):
        yield Problem("data.csv", reading.what, reading.expected, reading.todo, value=data.csv)
    elif not data.label:
        yield Problem("data.label", "this key is missing", "the column to predict", "name it: label: COLUMN")
    elif reading is not None:
        yield from _columns(data, reading)
    if data.schema and not is_address(data.schema) and not os.path.isfile(data.schema):
        yield Problem("data.schema", "there is no such file", "a schema.pbtxt", "check the path", value=data.schema)
    if reading is None and not (data.schema and data.task):
        what = "a table that is not on this machine is not read here"
        yield Problem("data.csv", what, "data.schema and data.task", "declare both", value=data.csv)
    yield from _splits(data.splits)
    if case.trainer.module_file is None and case.trainer.model is not None:
        what, todo = "the models of trainer.model are of images", "name a module file with a trainer_fn or a run_fn"
        yield Problem("trainer.model", what, "trainer.module_file", todo, value=case.trainer.model)
    if case.transform == type(case.transform)():
        what, todo = "`standardize` is for images", "name your own: transform: {module_file: FILE}"
        yield Problem("transform.preprocessing_fn", what, _CODE, todo)


def _columns(data: DataSection, reading: TableReading) -> Iterator[Problem]:
    names = [column.name for column in reading.columns]
    if not task_of_label(data, reading):
        near = nearest(data.label or "", names)
        what = f"there is no column `{data.label}`" if data.label not in names else "its values do not tell the task"
        todo = "if your preprocessing_fn makes it, declare data.task: binary, classes or regression"
        yield Problem("data.label", what, "a column", f"did you mean `{near}`? {todo}" if near else todo, data.label)
    for key, name in (("weight", data.weight), ("split_by", data.split_by)):
        if name is not None and name not in names:
            near = nearest(name, names)
            todo = f"did you mean `{near}`?" if near else "name a column"
            yield Problem(f"data.{key}", f"there is no column `{name}`", "a column", todo, value=name)


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
