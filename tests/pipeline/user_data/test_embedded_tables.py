"""The embedded tables: scikit-learn's numbers, in a file that a rerun finds unchanged."""

from __future__ import annotations

import csv
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes

from tests.pipeline.runners.deployed import COMMON, OF_TARGET
from tfx_estimator.pipeline.base.errors import DeclarationError, TfxEstimatorError
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.paths import OF_THIS_MACHINE
from tfx_estimator.pipeline.config.task import BINARY, REGRESSION
from tfx_estimator.pipeline.platforms.registry import TARGETS
from tfx_estimator.pipeline.user_data.embedded_tables import place_of
from tfx_estimator.pipeline.user_data.table import read_table


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize(
    ("name", "given", "label"),
    [
        ("cancer", load_breast_cancer(), "benign"),
        ("diabetes", load_diabetes(scaled=False), "progression"),
    ],
)
def test_a_table_has_the_names_and_numbers_of_scikit_learn(name, given, label):
    with open(place_of(name), newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == [*(each.replace(" ", "_") for each in given.feature_names), label]
    assert {len(row) for row in rows} == {len(header)}
    np.testing.assert_array_equal(np.array(rows, float), np.column_stack([given.data, given.target]))
    assert list(read_table(place_of(name), label=label).notes()) == []


def test_the_file_is_written_once_and_again_as_it_was_if_it_is_missing_or_damaged(cache):
    path = Path(place_of("cancer"))
    assert path.is_relative_to(cache)
    whole, before = path.read_bytes(), path.stat()
    assert place_of("cancer") == str(path)
    assert path.stat() == before
    for damage in (lambda: path.unlink(), lambda: os.truncate(path, 99), lambda: path.write_bytes(whole[::-1])):
        damage()
        assert place_of("cancer") == str(path)
        # By size and time TFX's cache tells whether a file has changed.
        assert (path.read_bytes(), path.stat().st_mtime) == (whole, before.st_mtime)
    assert [each.name for each in path.parent.iterdir()] == ["cancer.csv"]


def test_runs_that_write_it_at_once_all_find_it_whole():
    path = Path(place_of("diabetes"))
    whole = path.read_bytes()
    found: list[bytes] = []

    def read_all() -> None:
        found.extend(Path(place_of("diabetes")).read_bytes() for _ in range(20))

    path.unlink()
    threads = [threading.Thread(target=read_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [whole] * 80


def test_a_cache_that_cannot_be_written_is_named(cache):
    cache.write_text("no folder")
    with pytest.raises(TfxEstimatorError, match=f"{cache}.*XDG_CACHE_HOME.* cannot be written"):
        place_of("cancer")


@pytest.mark.parametrize(("name", "kind"), [("cancer", BINARY), ("diabetes", REGRESSION)])
def test_a_name_stays_a_name_beside_a_folder_of_this_name(tmp_path, monkeypatch, cli, name, kind):
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    data = load(name).declaration.data
    assert (data.csv, data.table().pattern) == (name, f"{name}.csv")
    # The folder itself is ./cancer.
    with pytest.raises(DeclarationError, match="there is no file"):
        load(name, [f"data.csv=./{name}"])
    assert f"{name}, {kind} `{data.label}` -> wide_deep" in cli("validate", name).out
    (tmp_path / name).rmdir()
    lines = [line.strip() for line in cli("data", name).out.splitlines()]
    assert {f"the label {data.label} asks for: {kind}", f"csv: {name}", f"label: {data.label}"} <= {*lines}


@pytest.mark.parametrize("target", TARGETS)
def test_a_service_is_given_a_copy(target):
    there = f"copy {place_of('cancer')} there"
    with pytest.raises(DeclarationError, match=rf"(?s)data\.csv.*{OF_THIS_MACHINE}.*{there}"):
        load("cancer", [*COMMON, *OF_TARGET[target]], target)
    copied = ["data.csv=gs://example-bucket/cancer.csv", "data.schema=gs://example-bucket/it.pbtxt", "data.task=binary"]
    assert load("cancer", [*COMMON, *OF_TARGET[target], *copied], target)
