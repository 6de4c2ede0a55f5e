"""Compares what a training changed with what another one did."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple, Optional

import numpy as np
import tensorflow as tf

WEIGHTS = "weights"
# A change this small beside the largest of its kind is noise: the bias before a batch normalisation.
_NOISE = 1e-5
_OBJECT = "/.ATTRIBUTES/VARIABLE_VALUE"


class Change(NamedTuple):
    """How a part of a model changed, in comparison.

    Attributes:
        ratio: Norm of its change / norm of the change it is compared with.
        difference: Norm of the difference of the two changes, element by element / norm of that other change.
    """

    ratio: float
    difference: float


# Part of the model, kind of variable -> how it changed.
Changes = dict[tuple[str, str], Change]


def compare(one: str, other: str, steps: int, trained: Sequence[str]) -> Changes:
    """Compares two trainings from the same weights.

    Args:
        one: Folder with the checkpoints of step 0 and of the last one.
        other: The same, of what is compared with it.
        steps: Of both.
        trained: Names of the trained variables.

    Returns:
        How each part of the model changed, with each of its optimizer's slots; empty where nothing did.
    """
    before, after = _changes(one, steps), _changes(other, steps)
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in before:
        place = _place(name, trained)
        if place is not None and name in after:
            groups[place].append(name)
    pairs = {key: [(before[name], after[name]) for name in names] for key, names in groups.items()}
    norms = {key: _norms(each) for key, each in pairs.items()}
    largest: dict[str, float] = defaultdict(float)
    for (_, kind), norm in norms.items():
        largest[kind] = max(largest[kind], *norm)
    return {
        key: Change(norm[1] / norm[0] if norm[0] else float("inf"), _difference(pairs[key]))
        for key, norm in norms.items()
        if max(norm) > _NOISE * largest[key[1]]
    }


def _changes(folder: str, steps: int) -> dict[str, np.ndarray]:
    """What training changed, by the variables' names in the checkpoint."""
    before, after = (tf.train.load_checkpoint(os.path.join(folder, f"model.ckpt-{step}")) for step in (0, steps))
    floats = [name for name, kind in after.get_variable_to_dtype_map().items() if kind.is_floating]
    return {name: after.get_tensor(name).astype(np.float64) - before.get_tensor(name) for name in floats}


def _place(name: str, trained: Sequence[str]) -> Optional[tuple[str, str]]:
    """The part of the model that a checkpoint's variable belongs to, and its kind; None where it is not trained."""
    if name.endswith(_OBJECT):
        # Of Keras: an Estimator made by model_to_estimator.
        owner, _, slot = name.removesuffix(_OBJECT).partition("/.OPTIMIZER_SLOT/")
        return owner.split("/")[0], slot.rsplit("/", 1)[-1] or WEIGHTS
    owner = max((each for each in trained if f"/{each}/" in f"/{name}/"), key=len, default="")
    if not owner:
        return None
    return owner.split("/")[0], WEIGHTS if name == owner else name.rsplit("/", 1)[-1]


def _norms(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[float, float]:
    """Norms of the changes, in proportion to the gradients."""
    # A slot that adds up squares, such as Adam's v, only grows; the root makes it as quiet as the others.
    squares = all((one >= 0).all() and (other >= 0).all() for one, other in pairs)
    sums = (sum(float(np.sum(each if squares else each**2)) for each in side) for side in zip(*pairs))
    one, other = (total**0.5 for total in sums)
    return one, other


def _difference(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> float:
    """Norm of the differences, in proportion to the first of each pair."""
    apart = sum(float(np.sum((other - one) ** 2)) for one, other in pairs) ** 0.5
    norm = sum(float(np.sum(one**2)) for one, _ in pairs) ** 0.5
    return apart / norm if norm else float("inf")
