"""AutoGraph converts a user's layers within our own step, and not the step, which would take seconds."""

from __future__ import annotations

import traceback
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tfx_estimator.components.trainer.keras.drivers import make_execute
from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.model_fn.step.classifier import make_model_fn
from tfx_estimator.model_fn.step.keras_classifier import KerasClassifier
from tfx_estimator.pipeline.config.trainer import TrainerSection

SECTION = {"train_steps": 1, "global_batch_size": 4, "optimizer": {"name": "sgd", "learning_rate": 0.1}}
IMAGES, LABELS = np.full([4, 3], 8.0, np.float32), np.zeros([4], np.int64)
# File and name of the functions that called the layer below.
callers: set[tuple[str, str]] = set()


class Halving(tf.keras.layers.Layer):
    """Halves its inputs until they are small: without AutoGraph, a tensor is no condition of a loop."""

    def call(self, inputs):
        callers.update((Path(frame.filename).name, frame.name) for frame in traceback.extract_stack())
        while tf.reduce_max(inputs) > 1.0:
            inputs = inputs / 2.0
        return inputs


def network(num_classes: int) -> tf.keras.Model:
    return tf.keras.Sequential([tf.keras.Input([3], name="image"), Halving(), tf.keras.layers.Dense(num_classes)])


def batches() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors(({"image": IMAGES}, LABELS)).repeat()


@pytest.fixture(autouse=True)
def nothing_seen():
    callers.clear()


def test_an_estimator_under_a_mirrored_strategy(tmp_path):
    params = {"num_classes": 2, "seed": 1, **SECTION}
    config = tf.estimator.RunConfig(str(tmp_path), train_distribute=tf.distribute.MirroredStrategy(["cpu:0"]))
    estimator = tf.estimator.Estimator(make_model_fn(network), config=config, params=params)
    estimator.train(batches, steps=1)
    assert estimator.get_variable_value("global_step") == 1
    assert ("classifier.py", "_train") in callers


@pytest.mark.parametrize("xla", [False, True])
def test_a_keras_loop_under_a_mirrored_strategy(xla):
    section, strategy = TrainerSection(**SECTION, xla=xla), tf.distribute.MirroredStrategy(["cpu:0"])
    with strategy.scope():
        model = KerasClassifier(network(2), section)
        model.compile(optimizer=DeclaredOptimizer(section.optimizer, 1))
        model.optimizer._create_all_weights(model.trainable_variables)
    batch = next(iter(batches()))
    values = make_execute(model, strategy)(iter(strategy.experimental_distribute_dataset(batches())), tf.constant(1))
    assert np.isfinite(values["loss"])
    assert ("keras_classifier.py", "train_step") in callers
    assert tf.function(model.test_step)(batch)["examples"] == 4
    assert tf.function(model.answers)(batch[0], ())["class_ids"].shape == [4]
