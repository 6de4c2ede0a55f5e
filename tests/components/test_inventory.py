"""An artifact's content when it was published, compared with what is left."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest

from tests.artifacts import artifact, write_records
from tests.folders import flip, write_files
from tfx_estimator.components import inventory
from tfx_estimator.components.inventory import checked_inputs, damage, note
from tfx_estimator.pipeline.base.errors import DamagedDataError, TaskFailedError


@pytest.fixture
def examples(tmp_path):
    """An Examples artifact with two files of three records."""
    folder = tmp_path / "examples" / "1" / "Split-train"
    folder.mkdir(parents=True)
    for name in "ab":
        write_records(folder / name, [b"twelve bytes"] * 3)
    made = artifact("Examples", folder.parent, dataset="digits")
    note(made.mlmd_artifact, made.type_name)
    return made


def file_of(made, name: str = "b") -> Path:
    return Path(made.uri) / "Split-train" / name


def test_a_missing_file_and_one_cut_after_a_record_are_named(examples):
    file = file_of(examples)
    os.truncate(file, file.stat().st_size * 2 // 3)
    assert damage(examples) == (str(file), "it has 56 bytes of 84")
    file.unlink()
    assert damage(examples) == (str(file), "it is gone")


@pytest.mark.parametrize("name", ["transform", "trainer", "evaluator"])
def test_readers_get_all_examples_or_an_error(examples, name):
    executor = importlib.import_module(f"tfx_estimator.components.{name}.executor").Executor
    file_of(examples).unlink()
    with pytest.raises(DamagedDataError, match="Split-train/b: it is gone") as raised:
        executor().Do({"examples": [examples]}, {}, {})
    assert raised.value.todo == f"remove {examples.uri}, and run it again: that recreates it"


@pytest.mark.parametrize(
    "error",
    [
        ValueError("Not a valid TFRecord. Mismatch of data mask"),
        TaskFailedError("task chief-0 failed: DataLossError: corrupted record at 28"),
    ],
    ids=["raised here", "reported by a task"],
)
def test_of_big_examples_the_file_with_changed_bytes_is_named_when_reading_fails(examples, error, monkeypatch):
    monkeypatch.setattr(inventory, "_SMALL", 100)
    with pytest.raises(type(error)), checked_inputs({"examples": [examples]}):
        raise error
    file = file_of(examples)
    flip(file)
    with pytest.raises(DamagedDataError, match=f"damaged file {file}: "), checked_inputs({"examples": [examples]}):
        raise error


def test_changed_bytes_of_a_small_artifact_are_found_without_reading_it_for_its_content(examples):
    assert damage(examples) == ("", "")
    flip(file_of(examples, "a"))
    assert damage(examples) == (str(file_of(examples, "a")), "its bytes have changed since it was published")


def test_a_big_model_is_compared_when_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(inventory, "_SMALL", 0)
    made = artifact("Model", write_files(tmp_path, {"saved_model.pb": "a model", "variables/data": "weights"}))
    note(made.mlmd_artifact, made.type_name)
    flip(tmp_path / "variables" / "data")
    assert damage(made) == ("", "")
    with pytest.raises(DamagedDataError, match="variables/data: its bytes"), checked_inputs({"model": [made]}):
        raise AssertionError


def test_an_artifact_of_an_earlier_release_has_only_sizes(tmp_path):
    write_files(tmp_path, {"saved_model.pb": "a model"})
    made = artifact("Model", tmp_path, files='{"saved_model.pb": 7}')
    flip(tmp_path / "saved_model.pb")
    assert damage(made, whole=True) == ("", "")
    (tmp_path / "saved_model.pb").write_text("half")
    assert damage(made) == (str(tmp_path / "saved_model.pb"), "it has 4 bytes of 7")


def test_a_pushed_model_is_complete_at_its_destination(tmp_path):
    pushed = artifact("PushedModel", tmp_path / "pushed", pushed_destination=str(tmp_path / "serving" / "1"))
    write_files(tmp_path, dict.fromkeys(("pushed/saved_model.pb", "serving/1/saved_model.pb"), "a model"))
    note(pushed.mlmd_artifact, pushed.type_name)
    assert damage(pushed) == ("", "")
    flip(tmp_path / "serving" / "1" / "saved_model.pb")
    assert damage(pushed)[0] == str(tmp_path / "serving" / "1" / "saved_model.pb")
    (tmp_path / "serving" / "1" / "saved_model.pb").unlink()
    assert damage(pushed) == (str(tmp_path / "serving" / "1" / "saved_model.pb"), "it is gone")


def test_logs_and_checkpoints_may_be_removed(tmp_path):
    made = artifact("ModelRun", tmp_path)
    (tmp_path / "events").write_text("a curve")
    note(made.mlmd_artifact, made.type_name)
    (tmp_path / "events").unlink()
    assert damage(made) == ("", "")
