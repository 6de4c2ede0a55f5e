"""Which of the files that the user's code has read have changed since; and those that a declaration names."""

from __future__ import annotations

import hashlib

import pytest

from tests.artifacts import artifact
from tests.folders import write_files
from tfx_estimator.components import read_files

pytestmark = pytest.mark.unit


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_change_is_named_until_it_is_undone(tmp_path):
    mean, gone, dropped = (tmp_path / name for name in ("mean.npy", "gone.txt", "dropped.txt"))
    for file in (mean, gone):
        file.write_text("0.5")
    made = artifact("TransformGraph")
    read_files.keep(made, {str(file): _hash("0.5") for file in (mean, gone, dropped)})
    # What had gone at publication is temporary.
    assert read_files.changes_of(made) == []
    mean.write_text("100")
    gone.unlink()
    assert sorted(read_files.changes_of(made)) == ["gone.txt is gone", "mean.npy changed"]
    for file in (mean, gone):
        file.write_text("0.5")
    assert read_files.changes_of(made) == read_files.changes_of(artifact("Model")) == []


def test_the_tasks_of_a_training_may_be_killed_while_they_note(tmp_path):
    write_files(
        tmp_path / "logs",
        {
            "chief-0.attempt-1.read.jsonl": '["/a", "1"]\n["/written", "1"]\n["/written", ""]\n["/b", "2',
            "chief-0.attempt-2.read.jsonl": '["/a", "changed since"]\n["/b", "2"]\n',
            "worker-0.attempt-1.read.jsonl": '["/c", "3"]\n["/written", "2"]\n',
            "worker-0.attempt-1.log": '["/log", "4"]\n',
        },
    )
    assert read_files.of_training(str(tmp_path)) == {"/a": "1", "/b": "2", "/c": "3"}
    assert read_files.of_training(str(tmp_path / "none")) == {}


def test_declared_folders_are_hashed_file_by_file(tmp_path):
    write_files(tmp_path, {"mean.npy": "0.5", "words/a.txt": "a", "words/b/c.txt": "c", "other/mean.npy": "1"})
    paths = [str(tmp_path / name) for name in ("mean.npy", "words", "other/mean.npy")]
    assert read_files.hashes(paths) == {
        "mean.npy": _hash("0.5"),
        "words/a.txt": _hash("a"),
        "words/b/c.txt": _hash("c"),
        paths[2]: _hash("1"),
    }
