"""Damaged checkpoints, wherever an Estimator keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from tfx_estimator.components.trainer.estimator import checkpoints
from tfx_estimator.components.trainer.estimator.checkpoints import TrainingCheckpoints
from tfx_estimator.pipeline.errors import TrainingError

pytestmark = pytest.mark.unit


@pytest.fixture(params=["", "Format-Serving"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Holds the checkpoints of steps 10, 20 and 30, and what a worker leaves."""
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


def test_they_are_found(folder, tmp_path):
    assert checkpoints.folder_of(str(tmp_path)) == str(tmp_path / folder)
    assert checkpoints.drop_damaged(str(tmp_path)) == 30


def test_the_last_whole_one_becomes_the_latest(folder, tmp_path):
    data = folder / "model.ckpt-30.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:100])
    (folder / "model.ckpt-20.index").write_bytes(b"no index")
    assert checkpoints.drop_damaged(str(tmp_path)) == 10
    assert tf.train.latest_checkpoint(str(folder)) == str(folder / "model.ckpt-10")
    assert (folder / "damaged-model.ckpt-30.index").exists()
    assert checkpoints.drop_damaged(str(tmp_path)) == 10


def test_one_that_cannot_be_reached_is_not_called_damaged(folder, tmp_path, monkeypatch):
    def load(path: str) -> None:
        raise tf.errors.UnavailableError(None, None, "Unavailable: the storage does not answer")

    monkeypatch.setattr(tf.train, "load_checkpoint", load)
    with pytest.raises(TrainingError, match=r"model\.ckpt-30 cannot be read: Unavailable"):
        checkpoints.drop_damaged(str(tmp_path))
    assert (folder / "model.ckpt-30.index").exists()


def _state_of(folder: Path) -> str:
    path = f'"{folder}/model.ckpt-30"'
    return f"model_checkpoint_path: {path}\nall_model_checkpoint_paths: {path}\n"


def test_they_are_found_where_the_folder_was_moved_to(folder, tmp_path):
    (folder / "checkpoint").write_text(_state_of(folder))
    TrainingCheckpoints(str(tmp_path)).tidy()
    moved = tmp_path.rename(tmp_path.with_name(f"{tmp_path.name}-moved"))
    assert tf.train.latest_checkpoint(str(moved / folder.relative_to(tmp_path)))
    # Nor is one called damaged for the place where it was.
    state = moved / folder.relative_to(tmp_path) / "checkpoint"
    state.write_text(_state_of(folder))
    assert checkpoints.drop_damaged(str(moved)) == 30
    assert not list(moved.rglob("damaged-*"))
    assert tf.train.latest_checkpoint(str(state.parent)) == str(state.parent / "model.ckpt-30")


def test_what_workers_leave_is_removed(folder, tmp_path):
    checkpoints.remove_worker_copies(str(tmp_path))
    assert not list(tmp_path.rglob("tmp_worker_*"))
    assert checkpoints.drop_damaged(str(tmp_path)) == 30


def test_what_training_starts_from_is_not_taken_for_its_own(folder, tmp_path):
    (tmp_path / "pretrained").mkdir()
    for path in folder.glob("model.ckpt-30.*"):
        name = path.name.replace("-30", "-1000000")
        (tmp_path / "pretrained" / name).write_bytes(path.read_bytes())
    assert checkpoints.drop_damaged(str(tmp_path)) == 30


def test_an_empty_folder_has_none(tmp_path):
    assert checkpoints.drop_damaged(str(tmp_path)) is None
    assert checkpoints.folder_of(str(tmp_path)) == str(tmp_path)
