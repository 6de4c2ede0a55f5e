"""Compares what a training changed under several replicas with what it changed on one device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple, Optional

import numpy as np

# Relative: rounding is a hundred times smaller.
_EQUAL = 1e-3
# Relative: what an optimizer's epsilon, or a few steps, leave of a factor.
_EXACT = 1e-2
# Beside the largest change of its kind this one is rounding: of the bias before a batch normalisation, say.
_NOTHING = 1e-5


class Training(NamedTuple):
    """The values of all variables, by their names, before and after a training."""

    trained: Sequence[str]
    before: dict[str, np.ndarray]
    after: dict[str, np.ndarray]

    def change(self, name: str) -> np.ndarray:
        """What training changed."""
        return self.after[name].astype(np.float64) - self.before[name]


class Change(NamedTuple):
    """How a variable's update under several replicas compares with that on one device.

    Attributes:
        name: Of the variable, and of the optimizer's slot that tells.
        ratio: Norm of the update / norm of that on one device.
        difference: Norm of the difference of the two, element by element / norm of that on one device.
        scale: 1 if both are equal; exactly N or 1/N, of N replicas; None of anything else.
    """

    name: str
    ratio: float
    difference: float
    scale: Optional[float]


def compare(one: Training, many: Training, replicas: int) -> list[Change]:
    """Compares two trainings from the same weights: on one device, and under several replicas.

    Returns:
        A change for each variable that changed. Only the slots count of one that has them: Adam's weights change alike
        whatever the scale of the gradients.
    """
    kinds: dict[str, dict[str, str]] = defaultdict(dict)
    for name in filter(many.after.__contains__, one.after):
        owner = max((each for each in one.trained if f"/{each}/" in f"/{name}/"), key=len, default="")
        if owner:
            kinds["" if name == owner else name.rsplit("/", 1)[-1]][owner] = name
    found: dict[str, list[Change]] = defaultdict(list)
    # The weights are of no slot, and come last.
    for slot, names in sorted(kinds.items(), reverse=True):
        largest = max(_norm(each.change(name)) for each in (one, many) for name in names.values())
        for owner, name in names.items():
            if not largest or (not slot and owner in found):
                continue
            change, other = one.change(name), many.change(name)
            noise = _NOTHING * largest + float(np.finfo(np.float32).eps) * _norm(one.after[name])
            told = found[owner]
            # What is no number is not small.
            if not max(_norm(change), _norm(other)) <= noise:
                label = f"`{owner}` (the optimizer's `{slot}`)" if slot else f"`{owner}`"
                norm = _norm(change) or 1e-300
                scale = scale_of(change, other, replicas, noise, (1, 2) if slot else (1,))
                told.append(Change(label, _norm(other) / norm, _norm(other - change) / norm, scale))
    # What is exactly so many times larger tells most, and what is equal least.
    return [
        max(told, key=lambda each: (each.scale not in (None, 1), each.scale is None, each.difference))
        for told in found.values()
        if told
    ]


def scale_of(
    one: np.ndarray, many: np.ndarray, replicas: int, noise: float = 0.0, powers: Sequence[int] = (1,)
) -> Optional[float]:
    """Finds out how many times larger an array is under several replicas: as `Change.scale`.

    Args:
        noise: Norm of a difference that says nothing.
        powers: 2 is of what adds up squares.
    """
    if _norm(many - one) <= _EQUAL * _norm(one) + noise:
        return 1.0
    for factor in (1 / replicas, float(replicas)):
        for expected in (factor**power * one for power in powers):
            if _norm(many - expected) <= _EXACT * _norm(expected) + noise:
                return factor
    return None


def _norm(array: np.ndarray) -> float:
    return float(np.linalg.norm(array))
