"""An Estimator whose steps were all done before its export still exports."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit


@pytest.fixture
def training(monkeypatch):
    """TensorFlow's own module, as it was before after the test."""
    from tensorflow_estimator.python.estimator import training

    monkeypatch.setattr(training._TrainingExecutor, "run_local", training._TrainingExecutor.run_local)
    return training


def test_training_that_had_been_done_is_evaluated_and_exported(tmp_path: Path, training):
    import tensorflow as tf

    from tfx_estimator.components.trainer.run_fn import path

    def data():
        return tf.data.Dataset.from_tensors(({"x": [[1.0], [2.0]]}, [[1.0], [2.0]])).repeat()

    def receiver():
        placeholder = tf.compat.v1.placeholder(tf.float32, [None, 1])
        return tf.estimator.export.ServingInputReceiver({"x": placeholder}, {"x": placeholder})

    def train_and_evaluate() -> tuple:
        estimator = tf.estimator.LinearRegressor([tf.feature_column.numeric_column("x")], model_dir=str(tmp_path))
        exporters = [tf.estimator.FinalExporter("mine", receiver)]
        eval_spec = tf.estimator.EvalSpec(data, steps=1, exporters=exporters)
        return tf.estimator.train_and_evaluate(estimator, tf.estimator.TrainSpec(data, max_steps=3), eval_spec)

    def versions() -> list[str]:
        return sorted(path.name for path in (tmp_path / "export" / "mine").glob("[0-9]*"))

    before, _ = train_and_evaluate()
    assert before["global_step"] == 3
    assert len(versions()) == 1
    shutil.rmtree(tmp_path / "export")

    # What TensorFlow does, and why the patch is needed.
    assert train_and_evaluate() == (None, None)
    assert versions() == []

    path._EXPORT_AFTER_ALL.apply()
    after, exported = train_and_evaluate()
    assert after == before
    assert [Path(tf.compat.as_str(path)).name for path in exported] == versions()
    assert len(versions()) == 1
    # Training that is not skipped is evaluated and exported once.
    shutil.rmtree(tmp_path)
    assert train_and_evaluate()[0]["global_step"] == 3
    assert len(versions()) == 1
