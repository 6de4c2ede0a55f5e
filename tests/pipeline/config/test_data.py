"""Splits, image folders by class and tables of paths: problems that `validate` finds from names alone."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.data import find_overlap

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("train[:80%]", "train[70%:]", True),
        ("train[:80%]", "train[80%:]", False),
        ("train[-20%:]", "train[:90%]", True),
        ("train[:80%]", "test[70%:]", False),
        ("train[:5%]+train[95%:]", "test+train[90%:]", True),
        ("train[:10_000]", "train[9000:]", True),
        ("train[0:50%]", "train[40%:]", True),
        ("train", "train[-1000:]", True),
        ("train[3shard]", "train[0%:]", True),
        ("all", "test[:10]", True),
        # These are found once the number of examples is known.
        ("train[:80%]", "train[5000:]", False),
        ("train[:-1000]", "train[2000:]", False),
    ],
)
def test_overlaps_are_found_in_split_expressions(one, other, shared):
    assert bool(find_overlap(one, other)) == shared


@pytest.mark.parametrize(
    ("splits", "instead"),
    [
        ("{train: 'train[:80%]', eval: 'train[70%:]'}", "{train: 'train[:90%]', eval: 'train[90%:]'}"),
        (
            "{train: 'train[:80%]', eval: 'train[80%:]', test: 'train[90%:]'}",
            "{train: 'train[:80%]', eval: 'train[80%:90%]', test: 'train[90%:]'}",
        ),
    ],
)
def test_overlaps_are_refused_before_anything_runs(problems, good, splits, instead):
    (problem,) = problems(good.replace('{train: "train[:90%]", eval: test}', splits))
    assert "both hold a part of" in problem
    assert f"set splits: {instead}" in problem


THREE = tuple(f"{split}/{name}/1.png" for split in ("train", "val", "test") for name in ("cat", "dog"))


def _touch(folder, *names):
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


@pytest.fixture
def declare(good):
    def text(dataset, splits):
        return good.replace("dataset: mnist", f"dataset: {dataset}").replace(
            '  splits: {train: "train[:90%]", eval: test}\n', f"  splits: {splits}\n" if splits else ""
        )

    return text


@pytest.mark.parametrize(
    ("files", "splits", "todo"),
    [
        (("cat/1.png", "dog/1.png"), "", "set splits: {train: 'train[:90%]', eval: 'train[90%:]'}"),
        (("train/cat/1.png", "train/dog/1.png", "valid/cat/1.png"), "", "set splits: {train: 'train', eval: 'valid'}"),
        (
            ("train/cat/1.png", "train/dog/1.png", "test/cat/1.png"),
            "{eval: tset}",
            "set splits: {train: 'train', eval: 'test'}",
        ),
        (THREE, "{eval: val, test: tset}", "set splits: {train: 'train', eval: 'val', test: 'test'}"),
    ],
)
def test_a_missing_split_is_refused_with_a_fix(write, problems, declare, tmp_path, files, splits, todo):
    _touch(tmp_path / "pets", *files)
    (problem,) = problems(declare("./pets", splits))
    assert "the data set pets has no split" in problem
    assert todo in problem
    write(declare("./pets", todo.removeprefix("set splits: ")))
    assert load("mine.yaml").declaration.data.dataset == str(tmp_path / "pets")


def test_a_table_is_found_next_to_the_declaration(write, problems, declare, tmp_path):
    (problem,) = problems(declare("labels.csv", "{eval: test}"))
    assert "there is no such file" in problem
    (tmp_path / "labels.csv").write_text("file,split\n")
    (problem,) = problems(declare("labels.csv", "{eval: test}"))
    assert "has no columns named label or class" in problem
    (tmp_path / "labels.csv").write_text("file,class,split\n")
    write(declare("labels.csv", "{eval: test}"))
    assert load("mine.yaml").declaration.data.dataset == str(tmp_path / "labels.csv")
