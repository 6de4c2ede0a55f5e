"""Damaged checkpoints in the folders of an Estimator."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorflow as tf

from tfx_estimator.components.trainer.checkpoint import damage
from tfx_estimator.components.trainer.estimator import checkpoints
from tfx_estimator.components.trainer.estimator.checkpoints import TrainingCheckpoints
from tfx_estimator.pipeline.base.errors import TrainingError


@pytest.fixture(params=["", "Format-Serving"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder with the checkpoints of steps 10, 20 and 30, and a worker's leftovers."""
    folder = tmp_path / request.param
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.get_variable("weight", [100], tf.float32)
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver()
        for step in (10, 20, 30):
            saver.save(session, str(folder / "model.ckpt"), global_step=step)
        (folder / "tmp_worker_1").mkdir()
        saver.save(session, str(folder / "tmp_worker_1" / "model.ckpt"), global_step=40)
    return folder


def test_they_are_found_and_workers_leftovers_are_removed(folder, tmp_path):
    assert checkpoints.folder_of(str(tmp_path)) == str(tmp_path / folder)
    TrainingCheckpoints(str(tmp_path)).tidy()
    assert not list(tmp_path.rglob("tmp_worker_*"))
    assert TrainingCheckpoints(str(tmp_path)).drop_damaged() == 30


def test_the_last_complete_checkpoint_becomes_the_latest(folder, tmp_path):
    data = folder / "model.ckpt-30.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:100])
    (folder / "model.ckpt-20.index").write_bytes(b"no index")
    assert TrainingCheckpoints(str(tmp_path)).drop_damaged() == 10
    assert tf.train.latest_checkpoint(str(folder)) == str(folder / "model.ckpt-10")
    assert (folder / "damaged-model.ckpt-30.index").exists()
    assert TrainingCheckpoints(str(tmp_path)).drop_damaged() == 10


@pytest.mark.parametrize(
    "error",
    [
        tf.errors.UnavailableError(None, None, "the storage does not answer"),
        tf.errors.AbortedError(None, None, "All 10 retry attempts failed. The last failure: HTTP response code 503"),
        tf.errors.ResourceExhaustedError(None, None, "Too many open files"),
        OSError(errno.ESTALE, "Stale file handle"),
    ],
)
def test_an_unreachable_checkpoint_does_not_count_as_damaged(folder, tmp_path, monkeypatch, error):
    def load(path: str) -> None:
        raise error

    monkeypatch.setattr(tf.train, "load_checkpoint", load)
    with pytest.raises(TrainingError, match=r"model\.ckpt-30 cannot be read: ") as caught:
        TrainingCheckpoints(str(tmp_path)).drop_damaged()
    assert caught.value.retryable
    assert (folder / "model.ckpt-30.index").exists()


@contextlib.contextmanager
def _no_file_can_be_opened() -> Iterator[None]:
    """Limits open files as in a busy process; TensorFlow's reader then only reports that as text."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = [os.open(os.devnull, os.O_RDONLY)]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (opened[0] + 1, hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(opened[0])


def test_a_checkpoint_whose_files_cannot_be_opened_does_not_count_as_damaged(folder):
    path = str(folder / "model.ckpt-30")
    with _no_file_can_be_opened(), pytest.raises(TrainingError, match=r"cannot be read: .*Too many open files"):
        damage(path)
    assert damage(path) is None


def test_a_temporarily_unreadable_checkpoint_does_not_count_as_damaged(folder, monkeypatch):
    load, failures = tf.train.load_checkpoint, [tf.errors.OpError(None, None, "error in the connection", 2)]

    def load_later(path: str):
        if failures:
            raise failures.pop()
        return load(path)

    monkeypatch.setattr(tf.train, "load_checkpoint", load_later)
    assert damage(str(folder / "model.ckpt-30")) is None
    assert not failures


def _cannot_be_read(file: Path) -> None:
    """Writes a file whose reads fail with EIO, like one with a bad sector."""
    file.unlink()
    file.symlink_to("/proc/self/mem")


@pytest.mark.parametrize("name", ["index", "data-00000-of-00001"])
def test_an_unreadable_checkpoint_is_damaged_if_another_is_readable(folder, tmp_path, name):
    _cannot_be_read(folder / f"model.ckpt-30.{name}")
    assert TrainingCheckpoints(str(tmp_path)).drop_damaged() == 20
    assert (folder / f"damaged-model.ckpt-30.{name}").is_symlink()


def test_no_checkpoint_is_damaged_if_none_is_readable(folder, tmp_path):
    for step in (10, 20, 30):
        _cannot_be_read(folder / f"model.ckpt-{step}.data-00000-of-00001")
    with pytest.raises(TrainingError, match=r"model\.ckpt-30 cannot be read: .*Input/output error") as caught:
        TrainingCheckpoints(str(tmp_path)).drop_damaged()
    assert caught.value.retryable
    assert not list(folder.glob("damaged-*"))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("index", None),
        ("index", lambda content: b""),
        ("index", lambda content: content[:-1]),
        ("index", lambda content: content[:12] + b"~" + content[13:]),
        ("data-00000-of-00001", None),
        ("data-00000-of-00001", lambda content: b""),
        ("data-00000-of-00001", lambda content: content[:-1]),
        ("data-00000-of-00001", lambda content: content[:50] + bytes([content[50] ^ 1]) + content[51:]),
        ("data-00000-of-00001", lambda content: bytes(len(content))),
    ],
)
def test_an_incomplete_checkpoint_is_damaged(folder, name, change):
    file = folder / f"model.ckpt-30.{name}"
    if change is None:
        file.unlink()
    else:
        file.write_bytes(change(file.read_bytes()))
    assert damage(str(folder / "model.ckpt-30"))


def _state_of(folder: Path) -> str:
    path = f'"{folder}/model.ckpt-30"'
    return f"model_checkpoint_path: {path}\nall_model_checkpoint_paths: {path}\n"


def test_they_are_found_in_a_moved_folder(folder, tmp_path):
    (folder / "checkpoint").write_text(_state_of(folder))
    TrainingCheckpoints(str(tmp_path)).tidy()
    moved = tmp_path.rename(tmp_path.with_name(f"{tmp_path.name}-moved"))
    assert tf.train.latest_checkpoint(str(moved / folder.relative_to(tmp_path)))
    # And none counts as damaged because of its old path.
    state = moved / folder.relative_to(tmp_path) / "checkpoint"
    state.write_text(_state_of(folder))
    assert TrainingCheckpoints(str(moved)).drop_damaged() == 30
    assert not list(moved.rglob("damaged-*"))
    assert tf.train.latest_checkpoint(str(state.parent)) == str(state.parent / "model.ckpt-30")


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 100, b"\xff\xfe", b"model_checkpoint_pa", b'all_model_checkpoint_paths: "a"']
)
def test_a_damaged_state_is_rewritten(folder, tmp_path, content):
    state = folder / "checkpoint"
    state.write_bytes(content)
    TrainingCheckpoints(str(tmp_path)).tidy()
    assert state.read_bytes() == content
    assert TrainingCheckpoints(str(tmp_path)).drop_damaged() == 30
    assert tf.train.latest_checkpoint(str(folder)) == str(folder / "model.ckpt-30")


def test_the_initial_weights_are_not_taken_for_a_checkpoint_of_the_training(folder, tmp_path):
    (tmp_path / "pretrained").mkdir()
    for path in folder.glob("model.ckpt-30.*"):
        name = path.name.replace("-30", "-1000000")
        (tmp_path / "pretrained" / name).write_bytes(path.read_bytes())
    assert TrainingCheckpoints(str(tmp_path)).drop_damaged() == 30


def test_an_empty_folder_has_none(tmp_path):
    assert TrainingCheckpoints(str(tmp_path)).drop_damaged() is None
    assert checkpoints.folder_of(str(tmp_path)) == str(tmp_path)
