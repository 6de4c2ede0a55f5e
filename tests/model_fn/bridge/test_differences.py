"""The differences that a proof measures."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tfx_estimator.model_fn.bridge.differences import MOST_OF_STEPS, difference, part


def test_differences_are_relative_to_the_largest_value_and_infinite_for_nan():
    assert difference(np.array([0.5, 0.25]), np.array([0.5, 0.251])) == pytest.approx(1e-3)
    assert difference(np.array([4000.0, 1.0]), np.array([4000.0, 2.0])) == pytest.approx(1 / 4000)
    assert difference(np.zeros(2), np.array([0.0, math.nan])) == math.inf


@pytest.mark.parametrize("rate", [0.05, 0.002])
def test_a_weight_decay_that_one_side_lacks_is_found_at_small_rates(rate):
    random = np.random.default_rng(1)
    before = random.normal(size=(64, 32)).astype(np.float32) * 0.1
    gradient = random.normal(size=before.shape).astype(np.float32) * 5e-3
    old = before - np.float32(rate) * (gradient + np.float32(5e-4) * before)
    alike = before - (np.float32(rate) * gradient + np.float32(rate * 5e-4) * before)
    for new, is_found in ((alike, False), (before - np.float32(rate) * gradient, True)):
        assert difference(old, new) <= 1e-5
        assert (part(before, old, new) > MOST_OF_STEPS) == is_found
