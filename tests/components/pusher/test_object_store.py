"""Versions in object storage: complete once saved_model.pb is there; remains of a dead push are removed."""

from __future__ import annotations

import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.components.conftest import until_it_lives
from tests.folders import contents, write_files
from tfx_estimator.components.pusher import object_store
from tfx_estimator.components.pusher.versions import LocalTree

ADDRESS = "store://bucket/serving"
FILES = {
    "saved_model.pb": b"graph",
    "fingerprint.pb": b"print",
    "assets/vocabulary.txt": b"a b c",
    "variables/variables.data-00000-of-00001": b"numbers" * 1000,
    "variables/variables.index": b"index",
}


@pytest.fixture
def model(tmp_path: Path):
    return LocalTree(str(write_files(tmp_path / "model", FILES)))


def push(model) -> str:
    return object_store.push(model, ADDRESS)


def versions(folder: Path) -> list[str]:
    """The versions that a model server can load, all of which are complete."""
    found = sorted(path.parent.name for path in folder.glob("[0-9]*/saved_model.pb")) if folder.exists() else []
    assert all(contents(folder / name) == FILES for name in found)
    return found


def test_a_push_that_dies_at_any_operation_is_cleaned_up_by_the_next(bucket, model):
    operations = 0
    for _ in until_it_lives(bucket, lambda: push(model), lambda: None):
        before = versions(bucket.folder)
        version = push(model)
        # A version with its last file is the same model and is not pushed again.
        assert before in ([], [version])
        assert os.listdir(bucket.folder) == [version]
        assert versions(bucket.folder) == [version]
        shutil.rmtree(bucket.folder)
        operations += 1
    # Two operations per file, and those around them.
    assert operations > 4 * len(FILES)


def test_an_error_leaves_nothing(bucket, model, monkeypatch):
    copy, room = bucket.copy, [0]

    def full(src, dst, overwrite=False):
        if not room[0]:
            raise OSError(28, "No space left on device")
        room[0] -= 1
        copy(src, dst, overwrite)

    monkeypatch.setattr(bucket, "copy", full)
    for files in range(2 * len(FILES)):
        room[0] = files
        with pytest.raises(OSError, match="No space left"):
            push(model)
        assert os.listdir(bucket.folder) == []


def test_concurrent_pushes_have_their_own_numbers(bucket, model, tmp_path):
    barrier = threading.Barrier(4)

    def push_own(index: int) -> tuple[str, int]:
        own = tmp_path / str(index)
        shutil.copytree(model.folder, own)
        (own / "assets" / "vocabulary.txt").write_text(str(index))
        barrier.wait()
        return push(LocalTree(str(own))), index

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(push_own, range(4)))
    assert sorted(os.listdir(bucket.folder)) == sorted(version for version, _ in found)
    assert len({version for version, _ in found}) == 4
    for version, index in found:
        assert (bucket.folder / version / "assets" / "vocabulary.txt").read_text() == str(index)


def test_a_file_that_is_removed_during_the_listing_does_not_fail_a_push(bucket, model, monkeypatch):
    draft = bucket.folder / ".push-elsewhere-1-a"
    write_files(draft, {"model/saved_model.pb": ""})
    walk = bucket.walk

    def walked(top, topdown=True, onerror=None):
        yield from list(walk(top))
        shutil.rmtree(draft, ignore_errors=True)

    monkeypatch.setattr(bucket, "walk", walked)
    version = push(model)
    assert os.listdir(bucket.folder) == [version]


def test_a_push_on_another_machine_is_left_alone_for_a_day(bucket, model):
    for name, age in ((".push-elsewhere-1-a", 1000), (".push-elsewhere-1-b", 100_000)):
        draft = write_files(bucket.folder / name, {"model/saved_model.pb": "", "version-77": ""})
        for file in ("model/saved_model.pb", "version-77"):
            os.utime(draft / file, (0, time.time() - age))
    version = push(model)
    assert sorted(os.listdir(bucket.folder)) == [".push-elsewhere-1-a", version]
