"""Differences of tensors, and of the changes made by training steps. It needs only NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

# Tolerance of logits.
MOST = 1e-5
# Tolerances of steps, relative to their size; and as a multiple of what rounding alone makes of them.
MOST_OF_STEPS, _TIMES_ROUNDED = 1e-4, 30.0
# Lower limit of the steps' size, relative to the weights: MOST_OF_STEPS of it is float32's rounding error of a weight.
_ROUNDED = 2.4e-3
# A tensor with a larger tolerance is not compared.
_LOOSE = 0.1


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


class Steps:
    """Tensors after training steps on both sides.

    Args:
        largest: Their largest difference by kind: see `part`.
        wrong: The difference of each tensor that differs by more than rounding explains, by its place.
        rounding: Tensors that rounding alone moves, such as a bias before a normalisation: Adam divides a gradient by
            its own size. They are not in `largest`.
    """

    def __init__(self) -> None:
        self.largest: dict[str, float] = {}
        self.wrong: dict[str, float] = {}
        self.rounding: list[str] = []

    def add(self, kind: str, place: str, *values: np.ndarray, rounded: float) -> None:
        """Adds a tensor of a `Tensor.kind`.

        Args:
            values: See `part`.
            rounded: The part by which rounding alone moves it.
        """
        found, most = part(*values), MOST_OF_STEPS + _TIMES_ROUNDED * rounded
        if not found <= most:
            self.wrong[place] = found
        if most > _LOOSE:
            self.rounding.append(place)
        else:
            self.largest[kind] = max(self.largest.get(kind, 0.0), found)

    def to_dict(self, old: Sequence[float], new: Sequence[float]) -> dict[str, Any]:
        """Returns fields of a `Proof`; `old` and `new` are the losses of the steps."""
        largest = {**self.largest, "loss": difference(np.array(old), np.array(new))}
        return {"next_steps": largest, "wrong": self.wrong, "rounding": self.rounding}
