"""What ends a Keras training for good is told as clearly as on the Estimator path."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.base import errors

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

NETWORK = """
import tensorflow as tf

class Wrong(tf.keras.Model):
    def __init__(self, num_classes):
        super().__init__()
        self.dense = tf.keras.layers.Dense(num_classes)

    def call(self, images, training=False):
        if training:
            raise ValueError("bad pixel")  # the line that is told
        return self.dense(tf.reshape(images, [-1, 28 * 28]))

class Diverging(Wrong):
    def call(self, images, training=False):
        return super().call(images) * (float("nan") if training else 1.0)
"""


@pytest.fixture
def network(tmp_path, monkeypatch):
    (tmp_path / "wrong_network.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_loss_that_is_not_a_number_ends_training_and_publishes_nothing(training, settings, network):
    trainer = {
        "path": "keras_custom_loop",
        "model": "wrong_network:Diverging",
        "distribution": {"max_restarts": 3},
    }
    with pytest.raises(errors.TrainingError, match=r"the loss of step \d+ is not a number") as told:
        training.run(settings(trainer, path="keras_custom_loop"))
    assert "lower trainer.optimizer.learning_rate" in told.value.todo
    assert told.value.exit_code == 5
    assert len(list(training.root.rglob("chief-0.*.log"))) == 1
    assert not list(training.root.rglob("model.ckpt-*"))
    assert not (training.root / "model" / "1" / "Format-Serving").exists()


def test_an_error_in_a_training_step_is_told_with_the_users_line_alone(training, settings, network):
    trainer = {"path": "keras", "model": "wrong_network:Wrong", "distribution": {"max_restarts": 3}}
    with pytest.raises(errors.TaskFailedError, match="failed: ValueError: bad pixel") as told:
        training.run(settings(trainer, path="keras"))
    said = str(told.value)
    line = NETWORK.splitlines().index('            raise ValueError("bad pixel")  # the line that is told') + 1
    assert f'wrong_network.py", line {line}, in call' in said
    assert "site-packages" not in said
    assert "mend the code above" in said
    assert len(list(training.root.rglob("chief-0.*.log"))) == 1
