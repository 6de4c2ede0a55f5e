"""Versions in a local folder: complete or absent, each with its own number."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.root import finish, start_python
from tfx_estimator.components.pusher import local_folder, versions
from tfx_estimator.components.pusher.versions import LocalTree
from tfx_estimator.pipeline.base import lock
from tfx_estimator.pipeline.base.errors import PipelineError

PUSH = """
import sys
from tfx_estimator.components.pusher import local_folder
from tfx_estimator.components.pusher.versions import LocalTree
print("ready", flush=True)
sys.stdin.readline()
print(local_folder.push(LocalTree(sys.argv[1]), sys.argv[2]))
"""


def model(folder: Path, text: str, size: int = 3_000_000) -> LocalTree:
    (folder / "variables").mkdir(parents=True)
    (folder / "assets").mkdir()
    (folder / "saved_model.pb").write_text(text)
    (folder / "variables" / "variables.data-00000-of-00001").write_bytes(text.encode() * (size // len(text)))
    return LocalTree(str(folder))


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "nested" / "serving"


def test_the_folder_holds_the_model_as_a_version_and_nothing_else(tmp_path, base):
    before = int(time.time())
    version = local_folder.push(model(tmp_path / "model", "one"), str(base))
    assert before <= int(version) <= time.time()
    assert contents(base / version) == contents(tmp_path / "model")
    assert os.listdir(base) == [version]
    # Permissions as usual, since a model server may be another user.
    assert (base / version).stat().st_mode == (tmp_path / "model").stat().st_mode


def test_numbers_grow_independently_of_the_clock(tmp_path, base):
    # No server reads the last two as numbers.
    for name in ("9999999999", "12", "0099", "old", "٣", "9" * 22, str(2**63 - 1)):
        (base / name).mkdir(parents=True)
    assert local_folder.push(model(tmp_path / "one", "one"), str(base)) == "10000000000"
    assert local_folder.push(model(tmp_path / "two", "two"), str(base)) == "10000000001"


def test_a_model_equal_to_the_newest_version_is_not_pushed_again(tmp_path, base):
    one, two = model(tmp_path / "one", "one"), model(tmp_path / "two", "two")
    first = local_folder.push(one, str(base))
    assert local_folder.push(one, str(base)) == first
    second = local_folder.push(two, str(base))
    # The first model again is a new version.
    third = local_folder.push(one, str(base))
    assert sorted(os.listdir(base), key=int) == [first, second, third]
    # One byte differs; the length is the same.
    (tmp_path / "one" / "saved_model.pb").write_text("onE")
    assert local_folder.push(one, str(base)) not in (first, second, third)


@pytest.mark.parametrize("texts", [("one", "two", "six"), ("one", "one", "one")])
def test_pushes_at_the_same_time(tmp_path, base, texts):
    for index, text in enumerate(texts):
        model(tmp_path / str(index), text)
    pushes = [start_python("-c", PUSH, str(tmp_path / str(index)), str(base)) for index in range(len(texts))]
    for push in pushes:
        assert push.stdout.readline() == "ready\n"
    for push in pushes:
        push.stdin.write("\n")
        push.stdin.flush()
    found = [printed.strip() for printed in finish(*pushes)]
    # Concurrent pushes of the same model, as in retries, make one version.
    assert len(set(found)) == len(set(texts))
    assert sorted(os.listdir(base)) == sorted(set(found))
    for index, version in enumerate(found):
        assert contents(base / version) == contents(tmp_path / str(index))


def dead_draft() -> str:
    """The name of a draft of an ended local process."""
    with subprocess.Popen(["true"]) as ended:
        return versions.draft_name().replace(f"-{os.getpid()}-", f"-{ended.pid}-")


def test_the_draft_of_a_running_push_stays_and_that_of_a_dead_one_is_removed(tmp_path, base):
    base.mkdir(parents=True)
    going, dead, begins = (base / versions.draft_name() for _ in range(3))
    # Killed before it took its lock.
    unlocked = base / dead_draft()
    for draft in (going, dead, begins, unlocked):
        (draft / "model").mkdir(parents=True)
    (dead / "lock").touch()
    with open(going / "lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        version = local_folder.push(model(tmp_path / "one", "one"), str(base))
        assert sorted(os.listdir(base)) == sorted([version, going.name, begins.name])
    local_folder.push(model(tmp_path / "two", "two"), str(base))
    assert not going.exists()


def test_without_locks_the_process_and_the_age_decide(tmp_path, base, monkeypatch):
    monkeypatch.setattr(lock, "try_lock", lambda fd: None)
    base.mkdir(parents=True)
    own, elsewhere, old = (
        base / name for name in (versions.draft_name(), ".push-elsewhere-1-a", ".push-elsewhere-1-b")
    )
    dead = base / dead_draft()
    for draft in (own, elsewhere, old, dead):
        (draft / "model").mkdir(parents=True)
        (draft / "lock").touch()
    for folder in (old, old / "model"):
        os.utime(folder, (0, time.time() - 100_000))
    version = local_folder.push(model(tmp_path / "one", "one"), str(base))
    assert sorted(os.listdir(base)) == sorted([version, own.name, elsewhere.name])


def test_a_version_number_taken_without_a_lock_is_respected(tmp_path, base, monkeypatch):
    model(base / "5000000000", "theirs")
    monkeypatch.setattr(versions, "after", lambda version: 5000000000)
    assert local_folder.push(model(tmp_path / "one", "one"), str(base)) == "5000000001"
    assert (base / "5000000000" / "saved_model.pb").read_text() == "theirs"


def test_a_lock_that_is_never_released_is_a_stated_error(tmp_path):
    path = tmp_path / "lock"
    with lock.held(str(path), "push"):
        too_long = pytest.raises(PipelineError, match=r"another push has held .*lock for 0\.2 s")
        with too_long, lock.held(str(path), "push", 0.2):
            pass
        assert path.exists()
    assert not path.exists()
