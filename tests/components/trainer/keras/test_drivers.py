"""The drivers of a Keras training: actions between two steps of one execution."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tfx_estimator.components.trainer.keras import drivers
from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.model_fn.step.keras_classifier import KerasClassifier
from tfx_estimator.pipeline.config.trainer import TrainerSection


class _Watch:
    """Executions whose length differs from the averaging interval."""

    total, step = 11, 2

    def __init__(self) -> None:
        self.values: list[dict[str, float]] = []

    @property
    def ended(self) -> bool:
        return self.step >= self.total

    def next_steps(self) -> int:
        return min(4, self.total - self.step)

    def done(self, steps: int, values: dict[str, float]) -> None:
        self.step += steps
        self.values.append(values)


@pytest.mark.parametrize("driver", ["fit", "loop"])
def test_an_averaging_gets_each_global_step_in_order(driver):
    section = TrainerSection(train_steps=11, global_batch_size=2, sync_every=3, optimizer={"name": "sgd"})
    network = tf.keras.Sequential([tf.keras.Input((3,), name="x"), tf.keras.layers.Dense(2)])
    model = KerasClassifier(network, section)
    model.compile(optimizer=DeclaredOptimizer(section.optimizer, 11), steps_per_execution=4)
    reported = tf.Variable(tf.zeros([0, 2], tf.int64), shape=[None, 2])

    class Averaging:
        def after(self, step: tf.Tensor) -> None:
            # After the step's own update.
            reported.assign(tf.concat([reported, [[step, model.optimizer.iterations]]], axis=0))

    batch = {"x": np.ones([2, 3], np.float32)}, np.array([0, 1])
    watch, strategy = _Watch(), tf.distribute.get_strategy()
    getattr(drivers, driver)(model, tf.data.Dataset.from_tensors(batch).repeat(), watch, strategy, Averaging())
    assert reported.numpy().tolist() == [[step, step - 2] for step in range(3, 12)]
    assert [set(each) for each in watch.values] == [{"loss", "accuracy"}] * 3
