"""Learning-rate schedules."""

from __future__ import annotations

import math

import pytest

from tfx_estimator.pipeline.config.optimizer import Optimizer

pytestmark = pytest.mark.unit


def rate(step: int, steps: int = 100, **section) -> float:
    import tensorflow as tf

    from tfx_estimator.model_fn.schedules import learning_rate

    return float(learning_rate(Optimizer(learning_rate=0.2, **section), steps, tf.constant(step, tf.int64)))


def test_a_constant_rate_is_constant():
    assert rate(0, schedule="constant") == rate(99, schedule="constant") == pytest.approx(0.2)


@pytest.mark.parametrize("step", [0, 25, 50, 100, 130])
def test_a_cosine_goes_down_to_zero_at_the_last_step(step):
    expected = 0.2 * 0.5 * (1 + math.cos(math.pi * min(step / 100, 1)))
    assert rate(step, schedule="cosine") == pytest.approx(expected, abs=1e-7)


def test_the_warm_up_is_linear_and_the_cosine_starts_after_it():
    assert [rate(step, schedule="constant", warmup_steps=4) for step in range(5)] == pytest.approx(
        [0.05, 0.1, 0.15, 0.2, 0.2]
    )
    assert rate(10, schedule="cosine", warmup_steps=10) == pytest.approx(0.2)
    assert rate(55, schedule="cosine", warmup_steps=10) == pytest.approx(0.1)


def test_a_schedule_of_keras_is_the_same_and_can_be_written_down():
    import tensorflow as tf

    from tfx_estimator.model_fn.schedules import KerasSchedule

    section = Optimizer(learning_rate=0.2, schedule="cosine", warmup_steps=10)
    schedule = KerasSchedule(section, 100)
    written = tf.keras.optimizers.schedules.serialize(schedule)
    again = tf.keras.optimizers.schedules.deserialize(written)
    for step in (0, 5, 55, 99):
        expected = rate(step, schedule="cosine", warmup_steps=10)
        assert float(schedule(step)) == float(again(tf.constant(step, tf.int64))) == expected
