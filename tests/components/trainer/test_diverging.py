"""A NaN loss ends a training on each path with one sentence, without a retry."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.base import errors

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

NETWORK = """
import tensorflow as tf

class Diverging(tf.keras.Model):
    def __init__(self, num_classes):
        super().__init__()
        self.dense = tf.keras.layers.Dense(num_classes)

    def call(self, images, training=False):
        return self.dense(tf.reshape(images, [-1, 28 * 28])) * (float("nan") if training else 1.0)
"""
RUN_FN = """
import tensorflow as tf


def model_fn(features, labels, mode):
    weight = tf.compat.v1.get_variable("weight", [])
    step = tf.compat.v1.train.get_global_step()
    loss = weight + tf.math.log(tf.cast(2 - step, tf.float32))  # the logarithm of -1 in the fourth step
    train = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)


def run_fn(fn_args):
    tf.estimator.Estimator(model_fn, fn_args.model_run_dir).train(
        lambda: tf.data.Dataset.from_tensors(({"x": [0.0]}, [0.0])).repeat(), max_steps=9
    )
"""


@pytest.mark.parametrize("path", ["estimator", "keras_custom_loop", "run_fn"])
def test_a_nan_loss_ends_training_and_publishes_nothing(training, settings, importable, path):
    (importable / "wrong_network.py").write_text(NETWORK)
    (importable / "wrong_run.py").write_text(RUN_FN)
    of_run_fn = path == "run_fn"
    trainer = {"model": "wrong_network:Diverging", "distribution": {"max_restarts": 3}}
    trainer |= {"module_file": str(importable / "wrong_run.py")} if of_run_fn else {"path": path}
    functions = {"run_fn": "wrong_run.run_fn"} if of_run_fn else {}
    with pytest.raises(errors.TrainingError) as caught:
        training.run(settings(trainer, path="" if of_run_fn else path), **functions)
    # A run_fn does not report its step.
    step = "the loss" if of_run_fn else "the loss of step 1"
    assert caught.value.what.startswith(f"{step} is not a number: training has diverged")
    assert "lower trainer.optimizer.learning_rate" in caught.value.todo
    assert caught.value.exit_code == 5
    assert len(list(training.root.rglob("chief-0.*.log"))) == 1
    assert of_run_fn or not list(training.root.rglob("model.ckpt-[1-9]*"))
    assert not (training.root / "model" / "1" / "Format-Serving").exists()
