"""Checkpoints of a training whose global step grows while they are written."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tfx_estimator.components.trainer.estimator import asynchronous_saves
from tfx_estimator.components.trainer.estimator.patches import tensorflow_fixes
from tfx_estimator.components.trainer.protocol.stop import ask_to_stop

pytestmark = pytest.mark.unit
DECLARED = 20


class _OthersGoOn(tf.compat.v1.train.CheckpointSaverListener):
    """Does what other workers do during a save: more steps."""

    def __init__(self, meanwhile: int) -> None:
        self._meanwhile = meanwhile
        self.begun: list[int] = []
        self.ended: list[int] = []

    def begin(self) -> None:
        step = tf.compat.v1.train.get_or_create_global_step()
        self._more = step.assign_add(self._meanwhile)

    def before_save(self, session: tf.compat.v1.Session, step: int) -> None:
        self.begun.append(int(step))

    def after_save(self, session: tf.compat.v1.Session, step: int) -> None:
        # Nothing is trained yet at the first.
        self.ended.append(int(session.run(self._more)) if len(self.begun) > 1 else int(step))


@pytest.mark.parametrize("meanwhile", [4, 9])
def test_a_new_checkpoint_is_whole_before_the_declared_steps_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: int
) -> None:
    monkeypatch.setattr(tf.compat.v1.train.CheckpointSaverHook, "_save", _save())
    tensorflow_fixes.apply()
    saved = asynchronous_saves.cell(str(tmp_path / "stop"))
    asynchronous_saves.apply(2, saved)
    listener = _OthersGoOn(meanwhile)
    _train(tmp_path, listener)
    assert len(listener.begun) > 5
    assert saved.get() == listener.begun[-1]
    # Until a checkpoint is whole, a dead server costs all steps since the one before began.
    at_risk = [end - begun for begun, end in zip(listener.begun[1:-2], listener.ended[2:-1])]
    assert max(at_risk) <= DECLARED
    # And not much earlier than needed.
    assert min(at_risk) >= DECLARED - 3


def test_a_worker_waits_for_the_checkpoint_that_it_is_an_interval_ahead_of(tmp_path: Path) -> None:
    stop_file = str(tmp_path / "stop")
    saved = asynchronous_saves.cell(stop_file)
    saved.set(100)
    hook = asynchronous_saves.wait_hook(stop_file, interval=20, trainers=2, max_steps=200)
    assert hook is not None

    def seconds(step: int) -> float:
        started = time.monotonic()
        hook.after_run(None, tf.compat.v1.train.SessionRunValues(np.int64(step), None, None))
        return time.monotonic() - started

    assert seconds(117) < 0.1
    threading.Timer(0.3, saved.set, [118]).start()
    assert 0.2 < seconds(118) < 1.0
    assert seconds(135) < 0.1
    # The chief saves no more after the last step.
    assert seconds(198) < 0.1
    threading.Timer(0.3, ask_to_stop, [stop_file, 140]).start()
    assert 0.2 < seconds(136) < 1.0


@pytest.mark.parametrize("interval", [None, 7])
def test_nobody_waits_where_there_is_no_interval_to_speak_of(tmp_path: Path, interval: int | None) -> None:
    assert asynchronous_saves.wait_hook(str(tmp_path / "stop"), interval, trainers=2, max_steps=None) is None


@pytest.mark.parametrize(
    ("declared", "meanwhile", "trainers", "expected"),
    [(100, 0, 2, 80), (100, 5, 2, 93), (25, 3, 2, 20), (25, 40, 2, 13), (1, 0, 2, 1), (2, 1, 8, 1)],
)
def test_the_margin(declared: int, meanwhile: int, trainers: int, expected: int) -> None:
    assert asynchronous_saves.save_every(declared, meanwhile, trainers) == expected


def _save() -> object:
    original = tf.compat.v1.train.CheckpointSaverHook._save
    return getattr(original, "__wrapped__", original)


def _train(model_dir: Path, listener: tf.compat.v1.train.CheckpointSaverListener) -> None:
    def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str) -> tf.estimator.EstimatorSpec:
        loss = tf.reduce_mean(tf.compat.v1.get_variable("weight", [], tf.float32) * features)
        step = tf.compat.v1.train.get_or_create_global_step()
        train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = tf.estimator.RunConfig(str(model_dir), save_checkpoints_steps=DECLARED)
    estimator = tf.estimator.Estimator(model_fn, config=config)
    estimator.train(
        lambda: tf.data.Dataset.from_tensors((tf.ones([2]), tf.ones([2]))).repeat(),
        max_steps=200,
        saving_listeners=[listener],
    )
