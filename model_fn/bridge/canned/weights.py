"""The tensors of a canned Estimator's checkpoint, and their places in the Keras model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Optional

import numpy as np

from tfx_estimator.model_fn.bridge.canned.optimizers import Optimizer, slot_of
from tfx_estimator.model_fn.bridge.tensors import HYPERPARAMETER, SLOT, STEP, WEIGHT, Placed, Reader, Tensor
from tfx_estimator.pipeline.base.errors import UserCodeError

_OF_COLUMN, _OF_WEIGHT = "name of the column or layer", "slot of the weight"
_BY_RATE = "slot of the weight, times -learning_rate"
_SET, _COUNTED = "set in network.py", "follows from the step"
# Slot names, with the prefixes of partitioned variables and of Keras models in a graph.
_OF_PART = re.compile(r"(?:t_0/|part_0/)?([^/]+)")


def hyperparameters(reader: Reader, optimizers: Mapping[str, Optimizer]) -> dict[str, dict[str, np.ndarray]]:
    """Returns the optimizer options in a checkpoint, by part: Keras's optimizers store them as variables."""
    found: dict[str, dict[str, np.ndarray]] = {part: {} for part in optimizers}
    for name in reader.get_variable_to_shape_map():
        match = re.fullmatch(r"training/([^/]+)/([^/]+)", name)
        if match and (part := _part_of(match[1], optimizers)) and match[2] != "iter":
            found[part][match[2]] = reader.get_tensor(name)
    return found


def place(reader: Reader, weights: Mapping[str, str], optimizers: Mapping[str, Optimizer]) -> list[Placed]:
    """Finds the place of each tensor.

    Args:
        weights: The place of each weight, by its name in the checkpoint.

    Raises:
        UserCodeError: A tensor has no place, or a weight no tensor.
    """
    shapes = reader.get_variable_to_shape_map()
    found = {name: _find(name, tuple(shapes[name]), weights, optimizers) for name in sorted(shapes)}
    wrong = [f"{name} of shape {list(shapes[name])} has no place" for name, each in found.items() if each is None]
    wrong += [f"{name} is not in it" for name in weights if name not in shapes]
    if wrong:
        raise UserCodeError(
            "\n".join(["the checkpoint does not match this Estimator:", *wrong]),
            expected="a place for each tensor, and a tensor for each weight",
            todo="use the code that created the Estimator when it trained",
        )
    return [each for each in found.values() if each is not None]


def values(reader: Reader, placed: list[Placed]) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the arrays of weights.npz."""
    for each in placed:
        if each.place:
            yield each.place, reader.get_tensor(each.tensor.name) * each.factor


def _find(
    name: str, shape: tuple[int, ...], weights: Mapping[str, str], optimizers: Mapping[str, Optimizer]
) -> Optional[Placed]:
    if name in weights:
        return Placed(Tensor(name, shape, WEIGHT), weights[name], _OF_COLUMN)
    if name == "global_step":
        return Placed(Tensor(name, shape, STEP), name, _OF_COLUMN)
    if re.search(r"(^|/)beta[12]_power(_1)?$", name):
        return Placed(Tensor(name, shape, HYPERPARAMETER), "", _COUNTED)
    optimizer, weight, slot = _slot(name, weights, optimizers)
    if optimizer is not None and weight:
        own = slot_of(optimizer, slot)
        if own is None:
            return None
        rule = _OF_WEIGHT if optimizer.factor == 1.0 else _BY_RATE
        return Placed(Tensor(name, shape, SLOT, weight, slot), f"{weights[weight]}/{own}", rule, optimizer.factor)
    if optimizer is not None:
        return Placed(Tensor(name, shape, HYPERPARAMETER), "", _COUNTED if slot == "iter" else _SET)
    return None


def _slot(
    name: str, weights: Mapping[str, str], optimizers: Mapping[str, Optimizer]
) -> tuple[Optional[Optimizer], str, str]:
    """Returns a tensor's optimizer, the weight whose slot it is, if it is one, and its name in the optimizer."""
    if match := re.fullmatch(r"training/([^/]+)/(?:(.+)/)?([^/]+)", name):
        part = _part_of(match[1], optimizers)
        weight = match[2] or ""
        known = part is not None and (not weight or weight in weights)
        return (optimizers[part], weight, match[3]) if known and part else (None, "", "")
    # The longest first: a column's name may be a prefix of another's.
    for weight in sorted(weights, key=len, reverse=True):
        if name.startswith(f"{weight}/") and (match := _OF_PART.fullmatch(name[len(weight) + 1 :])):
            part = "linear" if weights[weight].startswith("linear_") else "deep"
            return optimizers[part], weight, match[1]
    return None, "", ""


def _part_of(scope: str, optimizers: Mapping[str, Optimizer]) -> Optional[str]:
    """Returns the part whose optimizer has this scope: the second optimizer with the same name is numbered."""
    scopes: dict[str, str] = {}
    for part, optimizer in optimizers.items():
        scopes[f"{optimizer.name}_1" if optimizer.name in scopes else optimizer.name] = part
    return scopes.get(scope)
