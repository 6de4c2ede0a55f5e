"""The learning rate that a Keras path writes for TensorBoard."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tests.equivalence.conftest import read_losses
from tfx_estimator.components.trainer.keras.curves import Curves, learning_rate_of
from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.pipeline.config.optimizer import Optimizer


@pytest.mark.parametrize(
    ("make", "rates"),
    [
        (
            lambda keras: DeclaredOptimizer(Optimizer(learning_rate=0.4, schedule="linear", warmup_steps=2), 10),
            [0.2, 0.4, 0.4, 0.35],
        ),
        (lambda keras: keras.SGD(0.5), [0.5] * 4),
        (lambda keras: keras.SGD(keras.schedules.PolynomialDecay(0.4, 4, 0.0)), [0.4, 0.3, 0.2, 0.1]),
        (lambda keras: keras.legacy.SGD(keras.schedules.PolynomialDecay(0.4, 4, 0.0)), [0.4, 0.3, 0.2, 0.1]),
        (lambda keras: keras.legacy.SGD(0.6, decay=1.0), [0.6, 0.3, 0.2, 0.15]),
        (lambda keras: keras.legacy.Adadelta(), [0.001] * 4),
        (lambda keras: tf.keras.mixed_precision.LossScaleOptimizer(keras.SGD(0.25)), [0.25] * 4),
    ],
)
def test_it_is_that_of_the_step(make, rates):
    optimizer = make(tf.keras.optimizers)
    assert [learning_rate_of(optimizer, step) for step in (1, 2, 3, 4)] == pytest.approx(rates)


@pytest.mark.parametrize("kind", ["legacy", "new"])
def test_a_users_schedule_gets_the_step_in_the_optimizers_type(kind):
    seen = []

    class Own(tf.keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            seen.append(step.dtype)
            return 0.1 / (1.0 + 0.1 * (step if kind == "legacy" else tf.cast(step, tf.float32)))

    make = tf.keras.optimizers.legacy.SGD if kind == "legacy" else tf.keras.optimizers.SGD
    optimizer, weight = make(Own()), tf.Variable(1.0)
    optimizer.apply_gradients([(tf.ones([]), weight)])
    assert learning_rate_of(optimizer, 1) == pytest.approx(1.0 - float(weight))
    assert learning_rate_of(optimizer, 11) == pytest.approx(0.05)
    assert len(set(seen)) == 1


def test_a_schedule_that_cannot_be_called_has_no_curve():
    class Own(tf.keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return 0.1 * step

    optimizer = tf.keras.optimizers.SGD(0.5)
    optimizer._learning_rate = Own()
    assert learning_rate_of(optimizer, 1) is None


def test_an_optimizer_without_one_has_no_curve(tmp_path):
    optimizers = [object(), tf.keras.optimizers.SGD(0.5)]
    for number, optimizer in enumerate(optimizers):
        folder = str(tmp_path / str(number))
        curves = Curves(folder, rate=lambda step, optimizer=optimizer: learning_rate_of(optimizer, step))
        curves.write(7, {"loss": 0.5})
        curves.flush()
        assert read_losses(folder) == [(7, 0.5)]
        assert read_losses(folder, ("learning_rate",)) == [(7, 0.5)] * number
