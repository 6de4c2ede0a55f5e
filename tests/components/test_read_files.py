"""Which of the files that the user's code has read have changed since; and those that a declaration names."""

from __future__ import annotations

import hashlib
import os

from tests.artifacts import artifact
from tests.folders import write_files
from tfx_estimator.components import read_files
from tfx_estimator.pipeline.user_source import opened


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


def test_the_tasks_of_a_training_may_be_killed_while_they_note(tmp_path, monkeypatch):
    write_files(
        tmp_path / "logs",
        {
            "chief-0.attempt-1.read.jsonl": '["a", "1"]\n["written", "1"]\n["written", ""]\n["gone", "1"]\n["b", "2',
            "chief-0.attempt-2.read.jsonl": '["a", "changed since"]\n["b", "2"]\n',
            "worker-1.attempt-1.read.jsonl": '["a", "of its machine"]\n["c", "3"]\n["written", "2"]\n',
            "worker-10.attempt-1.read.jsonl": '["b", "of its machine"]\n',
            "worker-1.attempt-1.log": '["log", "4"]\n',
        },
    )
    write_files(tmp_path, dict.fromkeys(("a", "b", "c", "written", "log"), ""))
    monkeypatch.chdir(tmp_path)
    assert read_files.of_training(str(tmp_path)) == {"a": "1", "b": "2", "c": "3"}
    assert read_files.of_training(str(tmp_path), task="worker-1") == {"a": "of its machine", "written": "2", "c": "3"}
    assert read_files.of_training(str(tmp_path / "none")) == {}


def test_a_declared_folder_is_all_of_its_files(tmp_path, monkeypatch):
    files = {"mean.npy": "0.5", "words/a.txt": "a", "words/b/c.txt": "c", "other/mean.npy": "1"}

    def hashes(root: str, changed: dict[str, str]) -> dict[str, str]:
        write_files(tmp_path / root, {**files, **changed})
        paths = [str(tmp_path / root / name) for name in ("mean.npy", "words/", "other/mean.npy")]
        return dict(zip(files, read_files.hashes(paths).values(), strict=False))

    before = hashes("one", {})
    assert hashes("two", {}) == before
    for changed in ({"words/b/c.txt": "d"}, {"words/b/new.txt": ""}):
        other = hashes("two", changed)
        assert [name for name in other if other[name] != before[name]] == ["words/a.txt"]
    # Of many bytes, sizes and times count.
    monkeypatch.setattr("tfx_estimator.data.sources.files.CONTENT_LIMIT", 2)
    (tmp_path / "one" / "mean.npy").touch()
    assert hashes("one", {})["mean.npy"] != before["mean.npy"]


def test_of_more_than_a_gibibyte_sizes_and_times_are_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(opened, "_MOST", opened._Notes.hashed + 9)
    small, big = tmp_path / "small", tmp_path / "big"
    small.write_text("0.5")
    big.write_text("0123456789")
    files = {str(path): opened.hash_file(str(path)) for path in (big, small)}
    assert files[str(small)] == _hash("0.5")
    os.utime(small, (1, 1))
    assert read_files.changes(files) == []
    os.utime(big, (1, 1))
    assert read_files.changes(files) == ["big changed"]
