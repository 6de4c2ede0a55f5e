"""Folders in an object store, where nothing can be moved in one step."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.components.conftest import DIED
from tfx_estimator.components import files
from tfx_estimator.components.files import move_folder, read_json

pytestmark = pytest.mark.unit

FILES = {"saved_model.pb": b"graph", "assets/words.txt": b"a b", "variables/variables.index": b"index", "zebra": b"z"}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_move_that_dies_at_any_operation_loses_nothing_and_can_be_done_again(bucket, tmp_path):
    source, target = tmp_path / "bucket" / "source", tmp_path / "bucket" / "target"
    ended, operations = False, 0
    while not ended:
        shutil.rmtree(target, ignore_errors=True)
        for name, content in FILES.items():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes(content)
            (target / name).parent.mkdir(parents=True, exist_ok=True)
        pid = os.fork()
        if not pid:
            bucket.left = operations
            move_folder("store://bucket/source", "store://bucket/target")
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code in (0, DIED)
        ended = code == 0
        assert FILES in (contents(source), contents(target))
        # What loads is whole.
        for folder in (source, target):
            assert "saved_model.pb" not in contents(folder) or contents(folder) == FILES
        if source.exists():
            move_folder("store://bucket/source", "store://bucket/target")
        assert contents(target) == FILES
        assert not source.exists()
        operations += 1
    assert operations > 2 * len(FILES)


@pytest.mark.parametrize("operation", ["remove", "rmtree"])
def test_a_folder_whose_source_cannot_be_removed_has_been_moved(bucket, tmp_path, monkeypatch, caplog, operation):
    source, target = tmp_path / "bucket" / "source", tmp_path / "bucket" / "target"
    for name, content in FILES.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content)

    def fail(path: str) -> None:
        raise OSError("503: try again later")

    monkeypatch.setattr(bucket, operation, fail)
    move_folder("store://bucket/source", "store://bucket/target")
    assert contents(target) == FILES
    assert "what is left of it cannot be removed: 503" in caplog.text


def test_a_file_that_is_overwritten_is_read_again_until_it_is_whole(bucket, tmp_path, monkeypatch):
    # A bucket's client gives as many bytes as the old file had.
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
    with pytest.raises(ValueError, match="Expecting"):
        read_json("store://bucket/training.json")
    assert not wanted
