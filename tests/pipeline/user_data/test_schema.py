"""A kept schema against the first rows of a table, before Beam reads it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from tests.refusals import refused
from tfx_estimator.pipeline.base.errors import DataError, DataValidationError
from tfx_estimator.pipeline.user_data import table
from tfx_estimator.pipeline.user_data.schema import check_kept
from tfx_estimator.pipeline.user_data.table import read_table

_FEATURE = 'feature {{ name: "{}" type: {} presence {{ min_count: 1 {} }} }}\n'
_KEPT = "".join(_FEATURE.format(*each, "min_fraction: 0.9") for each in (("x", "FLOAT"), ("n", "INT"), ("w", "BYTES")))


def _check(folder: Path, names: str, row: str, kept: str = _KEPT, rows: int = 9) -> None:
    (folder / "t.csv").write_text("\n".join([names, *[row] * rows]))
    (folder / "schema.pbtxt").write_text(kept)
    check_kept(str(folder / "schema.pbtxt"), read_table(str(folder / "t.csv")))


@pytest.mark.parametrize(
    ("names", "row", "found"),
    [
        ("x,n,w", "1.5,1,a", ()),
        ("w,x,n", "a,,1", ()),
        ("x,n", "1.5,1", ("column w is gone",)),
        ("x,n,W", "1.5,1,a", ("column w is gone", "column W is new")),
        ("x,n,w", "1.5,1.5,a", ("column n holds numbers with a point ('1.5'), not whole numbers",)),
        ("x,n,w", "1,1,a", ("column x holds whole numbers ('1'), not numbers with a point",)),
        ("x,n,w", "?,1,3", ("column x holds words ('?')", "column w holds whole numbers ('3'), not words")),
    ],
)
def test_a_column_that_is_gone_new_or_of_another_kind_is_named_with_its_file(tmp_path, names, row, found):
    place, kept = str(tmp_path / "t.csv"), str(tmp_path / "schema.pbtxt")
    with refused(DataValidationError, place, *found, expected=kept, todo=kept) if found else contextlib.nullcontext():
        _check(tmp_path, names, row)


def test_rows_that_were_not_read_may_have_other_cells(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "_ROWS", 5)
    _check(tmp_path, "x,n,w", "1,1,3")
    with refused(DataValidationError, "column n holds words"):
        _check(tmp_path, "x,n,w", "1,?,3")


def test_what_the_user_wrote_counts(tmp_path):
    _check(tmp_path, "x,n", "1.5,1", _KEPT.replace('name: "w"', 'name: "w" lifecycle_stage: DEPRECATED'))
    with refused(DataError, "schema.pbtxt is not a schema"):
        _check(tmp_path, "x,n,w", "1.5,1,a", "feature { nome: 1 }")
    with refused(DataError, "schema.pbtxt is not a schema"):
        _check(tmp_path, "x,n,w", "1.5,1,a", "")


def test_a_class_that_the_rows_of_a_day_lack_stays_a_class(tmp_path):
    from tfx_estimator.pipeline.config import load
    from tfx_estimator.pipeline.config.table import task

    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{number},{'ac'[number % 2]}\n" for number in range(40)))
    (tmp_path / "t.yaml").write_text("name: t\ndata: {csv: t.csv, label: y}\ntrainer: {model: dnn, train_steps: 9}\n")
    declared = load(tmp_path / "t.yaml").declaration
    kept = tmp_path / "schema.pbtxt"
    assert (task(declared, str(kept)).kind, task(declared).names) == ("binary", ("a", "c"))
    kept.write_text(
        'feature { name: "y" type: BYTES domain: "y" }\nstring_domain { name: "y" value: "a" value: "b" value: "c" }'
    )
    assert (task(declared, str(kept)).kind, task(declared, str(kept)).names) == ("classes", ("a", "b", "c"))


def test_a_number_of_the_label_stays_a_class_too_and_a_new_one_is_told(tmp_path):
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    from tfx_estimator.pipeline.config import load
    from tfx_estimator.pipeline.config.table import task
    from tfx_estimator.pipeline.user_data.schema import keep_classes

    def declare(labels: str, *overrides: str) -> Any:
        (tmp_path / "t.csv").write_text(
            "x,y\n" + "".join(f"{number}.5,{label}\n" for number, label in enumerate(labels))
        )
        (tmp_path / "t.yaml").write_text(
            "name: t\ndata: {csv: t.csv, label: y}\ntrainer: {model: dnn, train_steps: 9}\n"
        )
        return load(tmp_path / "t.yaml", overrides).declaration

    first, kept = task(declare("0123" * 9)), tmp_path / "schema.pbtxt"
    schema = text_format.Parse(_FEATURE.format("x", "FLOAT", "") + _FEATURE.format("y", "INT", ""), schema_pb2.Schema())
    keep_classes(schema, "y", first.names)
    kept.write_text(text_format.MessageToString(schema))
    # 3 would be class 1.
    assert task(declare("03" * 9)).names == ("0", "3")
    assert task(declare("03" * 9), str(kept)) == first
    check_kept(str(kept), read_table(str(tmp_path / "t.csv")))
    declare("0124" * 9, "data.task=classes")
    with refused(DataValidationError, "column y holds '4', which is a new class", todo=str(kept)):
        check_kept(str(kept), read_table(str(tmp_path / "t.csv")))
    # Behind the rows that are read first, too.
    late = declare("0123" * 6000 + "4", "data.task=classes")
    check_kept(str(kept), read_table(str(tmp_path / "t.csv")))
    with refused(DataValidationError, "column y holds '4', which is a new class", todo=str(kept)):
        task(late, str(kept))
