"""Folders in an object store, which has no atomic move."""

from __future__ import annotations

import shutil

import pytest

from tests.components.conftest import until_it_lives
from tests.folders import contents, write_files
from tfx_estimator.components import files
from tfx_estimator.components.files import move_folder, read_json

FILES = {"saved_model.pb": b"graph", "assets/words.txt": b"a b", "variables/variables.index": b"index", "zebra": b"z"}


def test_a_move_that_dies_at_any_operation_loses_nothing_and_can_be_repeated(bucket, tmp_path):
    source, target = tmp_path / "bucket" / "source", tmp_path / "bucket" / "target"

    def begin() -> None:
        shutil.rmtree(target, ignore_errors=True)
        write_files(source, FILES)
        for name in FILES:
            (target / name).parent.mkdir(parents=True, exist_ok=True)

    def move() -> None:
        move_folder("store://bucket/source", "store://bucket/target")

    operations = 0
    for _ in until_it_lives(bucket, move, begin):
        assert FILES in (contents(source), contents(target))
        # A loadable model is complete.
        for folder in (source, target):
            assert "saved_model.pb" not in contents(folder) or contents(folder) == FILES
        if source.exists():
            move()
        assert contents(target) == FILES
        assert not source.exists()
        operations += 1
    assert operations > 2 * len(FILES)


@pytest.mark.parametrize("operation", ["remove", "rmtree"])
def test_a_folder_is_moved_even_if_its_source_cannot_be_removed(bucket, tmp_path, monkeypatch, caplog, operation):
    source, target = tmp_path / "bucket" / "source", tmp_path / "bucket" / "target"
    write_files(source, FILES)

    def fail(path: str) -> None:
        raise OSError("503: try again later")

    monkeypatch.setattr(bucket, operation, fail)
    move_folder("store://bucket/source", "store://bucket/target")
    assert contents(target) == FILES
    assert "the rest of it cannot be removed: 503" in caplog.text


def test_a_file_that_is_overwritten_is_reread_until_it_is_complete(bucket, tmp_path, monkeypatch):
    # A bucket's client returns as many bytes as the old file had.
    monkeypatch.setattr(files, "RETRY_SECONDS", (0.0, 0.0))
    file = tmp_path / "bucket" / "training.json"
    assert read_json("store://bucket/training.json") is None
    file.parent.mkdir(exist_ok=True)
    file.touch()
    opened, wanted = bucket.open, ['{"steps": 500', '{"steps": 100', '{"steps": 1000}']

    def growing(name, mode="r"):
        file.write_text(wanted.pop(0))
        return opened(name, mode)

    monkeypatch.setattr(bucket, "open", growing)
    assert read_json("store://bucket/training.json") == {"steps": 1000}
    wanted[:] = ["{"] * 3
    assert read_json("store://bucket/training.json") is None
    assert not wanted
