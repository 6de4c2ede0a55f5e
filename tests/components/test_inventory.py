"""What an artifact held when it was published, and what is left of it."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest
import tensorflow as tf
from tfx.types import standard_artifacts

from tfx_estimator.components.inventory import damage, note, whole
from tfx_estimator.pipeline.base.errors import DamagedDataError, TaskFailedError

pytestmark = pytest.mark.unit


@pytest.fixture
def examples(tmp_path):
    """An Examples artifact of ours, with two files of three records."""
    artifact = standard_artifacts.Examples()
    artifact.uri = str(tmp_path / "examples" / "1")
    artifact.set_string_custom_property("dataset", "digits")
    folder = tmp_path / "examples" / "1" / "Split-train"
    folder.mkdir(parents=True)
    for name in "ab":
        with tf.io.TFRecordWriter(str(folder / name)) as writer:
            for _ in range(3):
                writer.write(b"twelve bytes")
    note(artifact.mlmd_artifact, artifact.type_name)
    return artifact


def file_of(artifact, name: str = "b") -> Path:
    return Path(artifact.uri) / "Split-train" / name


def test_a_file_that_is_gone_and_one_that_is_cut_at_the_end_of_a_record_are_named(examples):
    file = file_of(examples)
    os.truncate(file, file.stat().st_size * 2 // 3)
    assert damage(examples) == (str(file), "it has 56 bytes of 84")
    file.unlink()
    assert damage(examples) == (str(file), "it is gone")


@pytest.mark.parametrize("name", ["transform", "trainer", "evaluator"])
def test_whoever_reads_examples_reads_all_of_them_or_none(examples, name):
    executor = importlib.import_module(f"tfx_estimator.components.{name}.executor").Executor
    file_of(examples).unlink()
    with pytest.raises(DamagedDataError, match="Split-train/b: it is gone") as raised:
        executor().Do({"examples": [examples]}, {}, {})
    assert raised.value.todo == f"remove {examples.uri}, and run it again: it is made anew"


@pytest.mark.parametrize(
    "error",
    [
        ValueError("Not a valid TFRecord. Mismatch of data mask"),
        TaskFailedError("task chief-0 failed: DataLossError: corrupted record at 28"),
    ],
    ids=["raised here", "told by a task"],
)
def test_the_file_whose_bytes_are_others_is_named_where_reading_failed(examples, error):
    with pytest.raises(type(error)), whole({"examples": [examples]}):
        raise error
    file = file_of(examples)
    content = bytearray(file.read_bytes())
    content[45] ^= 255
    file.write_bytes(content)
    with pytest.raises(DamagedDataError, match=f"damaged file {file}: "), whole({"examples": [examples]}):
        raise error


def test_a_pushed_model_is_whole_where_it_was_pushed_to(tmp_path):
    pushed = standard_artifacts.PushedModel()
    pushed.uri = str(tmp_path / "pushed")
    pushed.set_string_custom_property("pushed_destination", str(tmp_path / "serving" / "1"))
    for folder in (tmp_path / "pushed", tmp_path / "serving" / "1"):
        folder.mkdir(parents=True)
        (folder / "saved_model.pb").write_text("a model")
    note(pushed.mlmd_artifact, pushed.type_name)
    assert damage(pushed) == ("", "")
    (tmp_path / "serving" / "1" / "saved_model.pb").unlink()
    assert damage(pushed) == (str(tmp_path / "serving" / "1" / "saved_model.pb"), "it is gone")


def test_logs_and_checkpoints_may_be_removed(tmp_path):
    made = standard_artifacts.ModelRun()
    made.uri = str(tmp_path)
    (tmp_path / "events").write_text("a curve")
    note(made.mlmd_artifact, made.type_name)
    (tmp_path / "events").unlink()
    assert damage(made) == ("", "")
