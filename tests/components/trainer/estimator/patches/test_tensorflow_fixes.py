"""What a training task changes in TensorFlow."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from tfx_estimator.components.trainer.estimator.patches import tensorflow_fixes

STEPS = 20


@pytest.mark.unit
def test_a_checkpoint_hook_asks_for_the_step_only_when_one_may_be_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    session_run = tf.compat.v1.Session.run
    # Undoes the fix after the test.
    monkeypatch.setattr(tf.compat.v1.train.CheckpointSaverHook, "__init__", _constructor())
    monkeypatch.setattr(tf.compat.v1.Session, "run", lambda *args, **kw: runs.append(1) or session_run(*args, **kw))

    _train(tmp_path / "as it is")
    as_it_is = len(runs)
    tensorflow_fixes.apply()
    tensorflow_fixes.apply()
    runs.clear()
    _train(tmp_path / "fixed")

    assert as_it_is - len(runs) >= STEPS - 4
    assert _saved(tmp_path / "fixed") == _saved(tmp_path / "as it is") == {0, 7, 14, STEPS}


def _constructor() -> object:
    original = tf.compat.v1.train.CheckpointSaverHook.__init__
    return getattr(original, "__wrapped__", original)


def _train(model_dir: Path) -> None:
    def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str) -> tf.estimator.EstimatorSpec:
        loss = tf.reduce_mean(tf.compat.v1.get_variable("weight", [], tf.float32) * features)
        step = tf.compat.v1.train.get_or_create_global_step()
        train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = tf.estimator.RunConfig(str(model_dir), save_checkpoints_steps=7)
    estimator = tf.estimator.Estimator(model_fn, config=config)
    estimator.train(lambda: tf.data.Dataset.from_tensors((tf.ones([2]), tf.ones([2]))).repeat(), max_steps=STEPS)


def _saved(model_dir: Path) -> set[int]:
    return {int(path.stem.split("-")[1]) for path in model_dir.glob("model.ckpt-*.index")}
