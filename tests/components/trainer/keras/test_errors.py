"""A NaN loss ends a Keras training without a retry."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.base import errors

NETWORK = """
import tensorflow as tf

class Diverging(tf.keras.Model):
    def __init__(self, num_classes):
        super().__init__()
        self.dense = tf.keras.layers.Dense(num_classes)

    def call(self, images, training=False):
        return self.dense(tf.reshape(images, [-1, 28 * 28])) * (float("nan") if training else 1.0)
"""


@pytest.mark.cluster
@pytest.mark.timeout(240)
def test_a_nan_loss_ends_training_and_publishes_nothing(training, settings, importable):
    (importable / "wrong_network.py").write_text(NETWORK)
    trainer = {"model": "wrong_network:Diverging", "path": "keras_custom_loop", "distribution": {"max_restarts": 3}}
    with pytest.raises(errors.TrainingError, match=r"the loss of step \d+ is not a number") as caught:
        training.run(settings(trainer, path="keras_custom_loop"))
    assert "lower trainer.optimizer.learning_rate" in caught.value.todo
    assert caught.value.exit_code == 5
    assert len(list(training.root.rglob("chief-0.*.log"))) == 1
    assert not list(training.root.rglob("model.ckpt-*"))
    assert not (training.root / "model" / "1" / "Format-Serving").exists()
