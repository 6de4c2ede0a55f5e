"""Learning-rate schedules."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tfx_estimator.model_fn.optim.schedules import KerasSchedule, learning_rate
from tfx_estimator.pipeline.config.optimizer import Optimizer


def rate(step: int, steps: int = 100, **section) -> float:
    return float(learning_rate(Optimizer(learning_rate=0.2, **section), steps, tf.constant(step, tf.int64)))


def test_the_warm_up_is_linear_and_the_cosine_starts_after_it():
    assert [rate(step, schedule="constant", warmup_steps=4) for step in range(5)] == pytest.approx(
        [0.05, 0.1, 0.15, 0.2, 0.2]
    )
    assert rate(10, schedule="cosine", warmup_steps=10) == pytest.approx(0.2)
    assert rate(55, schedule="cosine", warmup_steps=10) == pytest.approx(0.1)


def test_a_schedule_of_keras_is_the_same_and_can_be_written_down():
    section = Optimizer(learning_rate=0.2, schedule="cosine", warmup_steps=10)
    schedule = KerasSchedule(section, 100)
    written = tf.keras.optimizers.schedules.serialize(schedule)
    again = tf.keras.optimizers.schedules.deserialize(written)
    for step in (0, 5, 55, 99):
        expected = rate(step, schedule="cosine", warmup_steps=10)
        assert float(schedule(step)) == float(again(tf.constant(step, tf.int64))) == expected


KERAS = {
    "exponential": lambda s: s.ExponentialDecay(0.2, 20, 0.5),
    "exponential staircase": lambda s: s.ExponentialDecay(0.2, 20, 0.5, staircase=True),
    "inverse_time": lambda s: s.InverseTimeDecay(0.2, 20, 0.5),
    "inverse_time staircase": lambda s: s.InverseTimeDecay(0.2, 20, 0.5, staircase=True),
    "linear": lambda s: s.PolynomialDecay(0.2, 100, 0.0),
    "polynomial": lambda s: s.PolynomialDecay(0.2, 50, 0.01, power=2.0),
    "cosine": lambda s: s.CosineDecay(0.2, 50, alpha=0.05),
    "cosine to 0": lambda s: s.CosineDecay(0.2, 100),
    "piecewise": lambda s: s.PiecewiseConstantDecay([10, 50], [0.3, 0.1, 0.01]),
}
OPTIONS: dict[str, dict] = {
    "exponential": {"decay_steps": 20, "decay_rate": 0.5},
    "inverse_time": {"decay_steps": 20, "decay_rate": 0.5},
    "polynomial": {"decay_steps": 50, "end_learning_rate": 0.01, "power": 2.0},
    "cosine": {"decay_steps": 50, "end_learning_rate": 0.01},
    "piecewise": {"boundaries": [10, 50], "values": [0.3, 0.1, 0.01]},
}


@pytest.mark.parametrize("case", KERAS)
def test_each_schedule_equals_keras(case):
    name, _, more = case.partition(" ")
    options = {"schedule": name, **(OPTIONS.get(name, {}) if more != "to 0" else {})}
    options |= {"staircase": True} if more == "staircase" else {}
    keras = KERAS[case](tf.keras.optimizers.schedules)
    for step in (0, 1, 10, 11, 19, 20, 50, 51, 99, 100, 120):
        assert rate(step, **options) == pytest.approx(float(keras(step)), rel=1e-5, abs=1e-8)
        if name != "piecewise":
            # After a warm-up the schedule is the same, shifted.
            assert rate(step + 7, 107, warmup_steps=7, **options) == pytest.approx(
                float(keras(step)), rel=1e-5, abs=1e-8
            )


def test_one_cycle_rises_and_falls():
    rates = [rate(step, schedule="one_cycle") for step in range(101)]
    assert rates[0] == pytest.approx(0.2 / 25)
    assert rates[30] == max(rates) == pytest.approx(0.2)
    assert rates[100] == pytest.approx(0.2 / 250_000, rel=0.1)
    assert rates[:31] == sorted(rates[:31])
    assert rates[30:] == sorted(rates[30:], reverse=True)


@pytest.mark.parametrize(("scaling", "factor"), [("none", 1), ("linear", 4), ("sqrt", 2)])
def test_a_scaled_rate_is_each_schedule_times_the_factor(scaling, factor):
    for name in ("constant", "cosine", "piecewise", "one_cycle", "polynomial"):
        options = {"schedule": name, **OPTIONS.get(name, {})}
        section = Optimizer(learning_rate=0.2, scaling=scaling, **options)
        for step in (0, 30, 99):
            found = float(learning_rate(section, 100, tf.constant(step, tf.int64), 4))
            assert found == pytest.approx(factor * rate(step, **options), rel=1e-6)
