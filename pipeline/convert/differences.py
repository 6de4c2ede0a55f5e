"""How far apart two sides are: of numbers, and of what a step of training changed. It needs NumPy alone."""

from __future__ import annotations

import collections
import math

import numpy as np

# What float32 rounds off of a weight's size in a step, by a thousandth of which the step itself may differ.
_ROUNDED = 2.4e-4
# Of logits, weights and slots.
MOST = 1e-5
# Of a step, as a part of it.
MOST_OF_STEP = 1e-3


def difference(old: np.ndarray, new: np.ndarray) -> float:
    """Returns the largest one; of numbers beyond 1, whose rounding grows with them, as a part of the largest.

    It is infinite where one is no number.
    """
    # Of large tensors there is room for few copies.
    old = np.asarray(old)
    with np.errstate(invalid="ignore"):
        apart = np.atleast_1d(np.subtract(new, old, dtype=np.float64))
    np.abs(apart, out=apart)
    found = float(apart.max(initial=0.0) / max(1.0, old.max(initial=0.0), -old.min(initial=0.0)))
    return found if math.isfinite(found) else math.inf


class Step:
    """A step of training on both sides.

    The step itself is compared as well: a small rate hides another gradient, of a weight decay that one side lacks say,
    from the largest difference.
    """

    def __init__(self) -> None:
        self.largest: dict[str, float] = collections.defaultdict(float)
        # Sums of squares by kind and group: of the difference, of the old step, of what was there before.
        self._sums: dict[tuple[str, str], np.ndarray] = collections.defaultdict(lambda: np.zeros(3))

    def add(self, kind: str, group: str, before: np.ndarray, old: np.ndarray, new: np.ndarray) -> None:
        """Adds a tensor.

        Args:
            kind: As of the tensor.
            group: Of tensors that move alike: the trained weights, or slots of one name.
            before: Its value before the step.
            old: After it, in the Estimator.
            new: After it, in Keras.
        """
        self.largest[kind] = max(self.largest[kind], difference(old, new))
        sums = self._sums[kind, group]
        for index, (one, other) in enumerate(((new, old), (old, before), (before, np.zeros(1)))):
            apart = np.subtract(one, other, dtype=np.float64).ravel()
            sums[index] += apart @ apart

    @property
    def parts(self) -> dict[str, float]:
        """By kind, the difference as a part of the step: the largest of the groups'."""
        found: dict[str, float] = collections.defaultdict(float)
        for (kind, _), sums in self._sums.items():
            apart, moved, size = np.sqrt(sums)
            most = max(moved, _ROUNDED * size)
            found[kind] = max(found[kind], float(apart / most) if most else math.inf if apart else 0.0)
        return dict(found)
