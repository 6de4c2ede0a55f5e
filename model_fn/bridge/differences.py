"""Differences of tensors, and of the changes made by training steps. It needs only NumPy."""

from __future__ import annotations

import math

import numpy as np

# Tolerance of logits; and of training steps, relative to what they change.
MOST, MOST_OF_STEPS = 1e-5, 1e-4
# Lower limit of such a change, relative to the weights: MOST_OF_STEPS of it is float32's rounding error of a weight.
_ROUNDED = 2.4e-3


def difference(old: np.ndarray, new: np.ndarray) -> float:
    """Returns the largest difference, relative to the largest number if that exceeds 1, since rounding grows with it.

    It is infinite if a number is NaN or infinite.
    """
    # In place: memory holds few copies of a large tensor.
    old = np.asarray(old)
    with np.errstate(invalid="ignore"):
        apart = np.atleast_1d(np.subtract(new, old, dtype=np.float64))
    np.abs(apart, out=apart)
    found = float(apart.max(initial=0.0) / max(1.0, old.max(initial=0.0), -old.min(initial=0.0)))
    return found if math.isfinite(found) else math.inf


def part(before: np.ndarray, old: np.ndarray, new: np.ndarray) -> float:
    """Returns the difference of a tensor trained on two sides, relative to what the training of the old side changed.

    With a small learning rate, a wrong gradient, such as one without a weight decay, makes only a small difference.
    """
    pairs = ((new, old), (old, before), (before, np.zeros(1)))
    flat = (np.subtract(one, other, dtype=np.float64).ravel() for one, other in pairs)
    apart, moved, size = (math.sqrt(each @ each) for each in flat)
    most = max(moved, _ROUNDED * size)
    return apart / most if most else math.inf if apart else 0.0
