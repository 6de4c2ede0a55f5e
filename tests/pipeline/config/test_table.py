"""A declared table: its task and classes, and what is wrong with it before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.table_files import write_parquet, write_records
from tfx_estimator.pipeline.base.errors import DataError, DeclarationError
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.data import Splits, Table
from tfx_estimator.pipeline.config.table import task
from tfx_estimator.pipeline.config.task import BINARY, CLASSES, REGRESSION, Task
from tfx_estimator.pipeline.user_data import table as reading

_WHOLE = "name: t\ndata: {csv: t.csv, label: y}\ntrainer: {model: dnn, train_steps: 10}\n"


@pytest.fixture
def declare(tmp_path: Path) -> Any:
    def declare(labels: list[str], *overrides: str, more: str = "") -> Any:
        rows = "".join(f"{number % 7},w{number % 3},{label}\n" for number, label in enumerate(labels))
        (tmp_path / "t.csv").write_text(f"x,word,y\n{rows}")
        (tmp_path / "t.yaml").write_text(_WHOLE + more)
        return load(tmp_path / "t.yaml", overrides).declaration

    return declare


@pytest.mark.parametrize(
    ("labels", "kind", "names"),
    [
        (["0", "1"], BINARY, ("0", "1")),
        (["1.0", "0.0"], BINARY, ("0", "1")),
        (["-1", "+1"], BINARY, ("-1", "1")),
        (["no", "yes"], BINARY, ("no", "yes")),
        (["2", "1", "3"], CLASSES, ("1", "2", "3")),
        (["good", "bad", "best"], CLASSES, ("bad", "best", "good")),
        ([f"{number}.5" for number in range(30)], REGRESSION, ()),
    ],
)
def test_the_label_tells_the_task_and_the_classes_in_their_order(declare, labels, kind, names):
    assert task(declare(labels * 4)) == Task(kind, "y", names, preprocessed=True)


def test_the_classes_are_those_of_all_rows(declare, monkeypatch):
    declaration = declare(["a"] * 30 + ["b"] * 30 + ["c"] * 30)
    monkeypatch.setattr(reading, "_ROWS", 60)
    assert task(declaration) == Task(CLASSES, "y", ("a", "b", "c"), preprocessed=True)
    for last in ("", "a\nshort"):
        declaration = declare(["a", "b"] * 40 + [last])
        with pytest.raises(DataError, match=r"line 8[23] of .*t.csv has no value of the label y"):
            task(declaration)


@pytest.mark.parametrize(
    ("override", "where"),
    [
        ("data.label=yy", "data.label"),
        ("data.weight=z", "data.weight"),
        ("data.split_by=z", "data.split_by"),
        ("data.splits={train: 2}", "data.splits"),
        ("data.splits={train: 0, eval: 1}", "data.splits"),
        ("data.dataset=mnist", "data.dataset"),
        ("data.schema=none.pbtxt", "data.schema"),
        ("trainer.params={hidden: [3]}", "trainer.params.hidden"),
        ("trainer.model=mnist_cnn", "trainer.model"),
        ("evaluator.slices=[z]", "evaluator.slices"),
    ],
)
def test_what_does_not_fit_the_table_is_named(declare, override, where):
    with pytest.raises(DeclarationError, match=where.replace(".", r"\.")):
        declare(["0", "1"] * 4, override)


@pytest.mark.parametrize("key", ["parquet", "tfrecord"])
def test_other_files_give_the_same_task_and_are_named_in_what_is_wrong(tmp_path, key):
    name = {"parquet": "t.parquet", "tfrecord": "t.tfrecord.gz"}[key]
    write = {"parquet": write_parquet, "tfrecord": write_records}[key]
    columns = {"x": [1.5, 2.5] * 20, "word": ["a", "b"] * 20, "y": ["no", "yes"] * 20}
    (tmp_path / "t.yaml").write_text(_WHOLE.replace("csv: t.csv", f"{key}: {name}"))

    def loaded(*overrides: str) -> Any:
        return load(tmp_path / "t.yaml", overrides).declaration

    write(tmp_path / name, columns)
    assert task(loaded()) == Task(BINARY, "y", ("no", "yes"), preprocessed=True)
    for override, what in {
        "data.csv=cancer": rf"(?s)data\.{key}: .*data\.csv is declared, too",
        "data.label=word2": r"data\.label: word2",
        f"data.{key}=none": rf"(?s)data\.{key}: .*there is no file .*none",
        'data.splits={train: "a*", eval: "t*"}': "there is no file .*, of the split train",
    }.items():
        with pytest.raises(DeclarationError, match=what):
            loaded(override)
    write(tmp_path / name, {**columns, "tags": [["a", "b"], []] * 20})
    with pytest.raises(DeclarationError, match="column tags has up to 2 values a row"):
        loaded()
    (tmp_path / "mine.py").write_text("def preprocessing_fn(inputs):\n    return inputs\n")
    assert task(loaded(f"transform.module_file={tmp_path}/mine.py")).kind == BINARY


def test_raw_columns_are_for_the_users_own_feature_columns(tmp_path):
    (tmp_path / "t.csv").write_text("x,word,y\n" + "1.5,a,no\n2.5,b,yes\n" * 20)
    (tmp_path / "t.yaml").write_text(_WHOLE)
    raw = "transform.preprocessing_fn=raw"
    with pytest.raises(DeclarationError, match=r"transform\.preprocessing_fn: raw"):
        load(tmp_path / "t.yaml", [raw])
    (tmp_path / "mine.py").write_text("def model_fn(features, labels, mode):\n    pass\n")
    own = [raw, "trainer.model=mine:model_fn"]
    assert task(load(tmp_path / "t.yaml", own).declaration) == Task(BINARY, "y", ("no", "yes"), preprocessed=True)
    with pytest.raises(DeclarationError, match=r"transform\.top_k: 5"):
        load(tmp_path / "t.yaml", [*own, "transform.top_k=5"])


def test_a_service_needs_the_schema_and_the_task_of_files_elsewhere(tmp_path):
    (tmp_path / "t.yaml").write_text(_WHOLE.replace("csv: t.csv", "parquet: gs://bucket/days/*.parquet"))
    with pytest.raises(DeclarationError, match=r"(?s)data\.parquet: .*a table that is not on this machine"):
        load(tmp_path / "t.yaml")
    (tmp_path / "schema.pbtxt").write_text('feature { name: "y" type: INT }')
    data = load(tmp_path / "t.yaml", [f"data.schema={tmp_path}/schema.pbtxt", "data.task=binary"]).declaration.data
    assert data.table() == Table("gs://bucket/days", "*.parquet", {"train": 2, "eval": 1}, {}, "parquet")


@pytest.mark.parametrize("override", ["trainer.model=wide_deep", "data.csv=t.csv"])
def test_a_table_s_model_needs_a_table_and_a_table_no_images(override):
    with pytest.raises(DeclarationError):
        load("digits", [override])


def test_files_and_splits_as_tfx_takes_them(tmp_path):
    assert Table.of("/a/b.csv", Splits()) == Table("/a", "b.csv", {"train": 2, "eval": 1}, {})
    assert Table.of("/a/day-*/x.csv", Splits(train=3, eval=1)) == Table(
        "/a", "day-*/x.csv", {"train": 3, "eval": 1}, {}
    )
    of = {"/a/b.tfrecord.gz": ("/a", "b.tfrecord.gz"), "/a/x-tfrecord-0-of-1": ("/a", "x-tfrecord-0-of-1")}
    for place, (folder, pattern) in (of | {"/a/tf": ("/a/tf", "*tfrecord*")}).items():
        assert Table.of(place, Splits(), "tfrecord") == Table(folder, pattern, {"train": 2, "eval": 1}, {}, "tfrecord")
    splits = Splits(train="train-*", eval="eval-*", test="test.csv")
    assert Table.of("/a/b", splits) == Table("/a/b", "*.csv", {}, splits.declared())
    # Spark names folders as files.
    (tmp_path / "day.parquet").mkdir()
    found = Table.of(str(tmp_path / "day.parquet"), Splits(), "parquet")
    assert (found.folder, found.pattern) == (str(tmp_path / "day.parquet"), "*.parquet")
