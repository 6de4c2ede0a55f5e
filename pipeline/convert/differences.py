"""Differences of tensors, and of the changes made by a training step. It needs only NumPy."""

from __future__ import annotations

import collections
import math

import numpy as np

# Lower limit of a step's size, relative to the weights: MOST_OF_STEP of it is float32's rounding error of a weight.
_ROUNDED = 2.4e-4
# Tolerance of logits, weights and slots.
MOST = 1e-5
# Tolerance of a step, relative to its size.
MOST_OF_STEP = 1e-3


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


class Step:
    """A training step on both sides.

    The change itself is compared as well: with a small learning rate the largest difference would miss a wrong
    gradient, for example of a weight decay that one side lacks.
    """

    def __init__(self) -> None:
        self.largest: dict[str, float] = collections.defaultdict(float)
        # Sums of squares by kind and group: of the difference, of the Estimator's step, of the values before.
        self._sums: dict[tuple[str, str], np.ndarray] = collections.defaultdict(lambda: np.zeros(3))

    def add(self, kind: str, group: str, before: np.ndarray, old: np.ndarray, new: np.ndarray) -> None:
        """Adds a tensor.

        Args:
            kind: `Tensor.kind`.
            group: Name of tensors with steps of similar size: the trained weights, or slots of one name.
            before: Value before the step.
            old: Value after it, in the Estimator.
            new: Value after it, in Keras.
        """
        self.largest[kind] = max(self.largest[kind], difference(old, new))
        sums = self._sums[kind, group]
        for index, (one, other) in enumerate(((new, old), (old, before), (before, np.zeros(1)))):
            apart = np.subtract(one, other, dtype=np.float64).ravel()
            sums[index] += apart @ apart

    @property
    def parts(self) -> dict[str, float]:
        """By kind, the largest of its groups' differences relative to the step."""
        found: dict[str, float] = collections.defaultdict(float)
        for (kind, _), sums in self._sums.items():
            apart, moved, size = np.sqrt(sums)
            most = max(moved, _ROUNDED * size)
            found[kind] = max(found[kind], float(apart / most) if most else math.inf if apart else 0.0)
        return dict(found)
