"""The comparison of two trainings' updates."""

from __future__ import annotations

import numpy as np
import pytest

from tfx_estimator.components.trainer.replica_check.trial import Change, Training, compare

GRADIENT = np.array([0.3, -0.2, 0.5, -0.1], np.float32)
Values = dict[str, np.ndarray]


def compared(one: Values, many: Values, start: Values | None = None) -> dict[str, Change]:
    """Compares trainings with these changes of the variables; `kernel` and `bias` are trained."""
    trainings = []
    for changes in (one, many):
        before = {name: np.zeros_like(change) for name, change in changes.items()} | (start or {})
        after = {name: before[name] + change for name, change in changes.items()}
        trainings.append(Training(["net/kernel", "net/bias"], before, after))
    return {change.name: change for change in compare(*trainings, replicas=2)}


@pytest.mark.parametrize(
    ("factor", "scale"), [(1, 1), (1.0001, 1), (2, 2), (0.5, 0.5), (0.503, 0.5), (1.02, None), (np.nan, None)]
)
def test_an_update_is_equal_or_a_multiple_or_neither(factor, scale):
    found = compared({"net/kernel": GRADIENT}, {"net/kernel": GRADIENT * np.float32(factor)})
    assert list(found) == ["`net/kernel`"]
    change = found["`net/kernel`"]
    assert change.scale == scale
    assert change.ratio == pytest.approx(factor, rel=1e-5, nan_ok=True)
    assert change.difference == pytest.approx(abs(factor - 1), abs=1e-5, nan_ok=True)


def test_the_slots_of_adam_show_a_scale_that_its_weights_hide():
    weights, sign = {"net/kernel": -0.01 * np.sign(GRADIENT)}, np.float32(0.5)
    one = {**weights, "net/kernel/Adam": 0.1 * GRADIENT, "net/kernel/Adam_1": 0.001 * GRADIENT**2}
    many = {**weights, "net/kernel/Adam": 0.1 * GRADIENT * sign, "net/kernel/Adam_1": 0.001 * (GRADIENT * sign) ** 2}
    (change,) = compared(one, many).values()
    assert change.scale == 0.5
    # The weights do not count: Adam divides tiny gradients by themselves, which amplifies rounding.
    noisy = {**one, "net/kernel": weights["net/kernel"][::-1].copy()}
    (change,) = compared(one, noisy).values()
    assert change.scale == 1


def test_untrained_and_hardly_changed_variables_are_left_out():
    one = {
        "net/kernel": GRADIENT,
        "net/bias": np.float32([1e-9]),
        "net/moving_mean": np.float32([0.3]),
        "loss": GRADIENT,
    }
    many = {**one, "net/bias": np.float32([-3e-9]), "net/moving_mean": np.float32([0.2]), "loss": 2 * GRADIENT}
    assert {name: change.scale for name, change in compared(one, many).items()} == {"`net/kernel`": 1}


def test_a_small_step_of_large_weights_may_differ_by_their_rounding():
    start = {"net/kernel": np.float32([100, 200, 300, 400])}
    one, many = ({"net/kernel": np.float32(step) * GRADIENT} for step in (1e-3, 1.03e-3))
    assert compared(one, many, start)["`net/kernel`"].scale == 1
    assert compared(one, many)["`net/kernel`"].scale is None


def test_the_weights_do_not_count_if_a_slot_hardly_changes():
    # A bias before batch normalisation: its gradient is rounding, which Adam turns into a whole step.
    one = {"net/kernel/m": GRADIENT, "net/bias/m": np.float32([1e-9]), "net/bias": np.float32([0.01])}
    many = {**one, "net/bias/m": np.float32([-1e-9]), "net/bias": np.float32([-0.01])}
    assert list(compared(one, many)) == ["`net/kernel` (the optimizer's `m`)"]
