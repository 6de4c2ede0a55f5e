"""A declared table: its task and classes, and what is wrong with it before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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


@pytest.mark.parametrize("override", ["trainer.model=wide_deep", "data.csv=t.csv"])
def test_a_table_s_model_needs_a_table_and_a_table_no_images(override):
    with pytest.raises(DeclarationError):
        load("digits", [override])


def test_files_and_splits_as_tfx_takes_them():
    assert Table.of("/a/b.csv", Splits()) == Table("/a", "b.csv", {"train": 2, "eval": 1}, {})
    assert Table.of("/a/day-*/x.csv", Splits(train=3, eval=1)) == Table(
        "/a", "day-*/x.csv", {"train": 3, "eval": 1}, {}
    )
    splits = Splits(train="train-*", eval="eval-*", test="test.csv")
    assert Table.of("/a/b", splits) == Table("/a/b", "*.csv", {}, splits.declared())
