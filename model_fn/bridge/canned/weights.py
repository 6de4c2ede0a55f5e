"""The tensors of a canned Estimator's checkpoint, and their places in the Keras model."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tfx_estimator.model_fn.bridge import tensors
from tfx_estimator.model_fn.bridge.canned.optimizers import Optimizer, row_of
from tfx_estimator.model_fn.bridge.kept.optimizers import Applied
from tfx_estimator.model_fn.bridge.optimizers import numbers_of, saved_name, slots_of
from tfx_estimator.model_fn.bridge.session import Training
from tfx_estimator.model_fn.bridge.tensors import GLOBAL_STEP, Placed, Reader, Tensor
from tfx_estimator.pipeline.base.errors import UserCodeError

_OF_COLUMN, _OF_WEIGHT = "name of the column or layer", "slot of the weight"
_BY_RATE = "slot of the weight, times -learning_rate"
_SET, _COUNTED = "set in network.py", "follows from the step"


def hyperparameters(reader: Reader, applied: Applied) -> dict[str, np.ndarray]:
    """Returns the optimizer options in a checkpoint: Keras's optimizers store them as variables."""
    hyper, shapes = getattr(applied.optimizers[0], "_hyper", {}), reader.get_variable_to_shape_map()
    names = {key: saved_name(each) for key, each in numbers_of(applied.optimizers[0]).items() if key in hyper}
    return {key: reader.get_tensor(name) for key, name in names.items() if name in shapes}


def place(
    reader: Reader, weights: Mapping[str, str], training: Training, optimizers: Mapping[str, Optimizer]
) -> list[Placed]:
    """Finds the place of each tensor."""
    shapes = reader.get_variable_to_shape_map()
    found = {name: Placed(Tensor(name, (), tensors.WEIGHT), at, _OF_COLUMN) for name, at in weights.items()}
    found[GLOBAL_STEP] = Placed(Tensor(GLOBAL_STEP, (), tensors.STEP), GLOBAL_STEP, _OF_COLUMN)
    for described, applied in zip(optimizers.values(), training.applied):
        optimizer, factor = applied.optimizers[0], described.factor
        for key, each in numbers_of(optimizer).items():
            name, rule = saved_name(each), _SET if key in getattr(optimizer, "_hyper", {}) else _COUNTED
            found.setdefault(name, Placed(Tensor(name, (), tensors.HYPERPARAMETER), "", rule))
        rule = _OF_WEIGHT if factor == 1.0 else _BY_RATE
        variables = training.graph.get_collection("trainable_variables")
        for name, (weight, slot) in slots_of(optimizer, row_of(optimizer), variables).items():
            if weight in weights:
                tensor = Tensor(name, (), tensors.SLOT, weight, name.rpartition("/")[2])
                found[name] = Placed(tensor, f"{weights[weight]}/{slot.keras2}", rule, factor)
    wrong = [f"{name} of shape {shapes[name]} has no place" for name in sorted(shapes) if name not in found]
    wrong += [f"{name} is not in it" for name in weights if name not in shapes]
    if wrong:
        raise UserCodeError(
            "\n".join(["the checkpoint does not match this Estimator:", *wrong]),
            expected="a place for each tensor, and a tensor for each weight",
            todo="use the code that created the Estimator when it trained; or keep all of it, by --to kept",
        )
    of_shape = {name: dataclasses.replace(found[name].tensor, shape=tuple(shapes[name])) for name in sorted(shapes)}
    return [dataclasses.replace(found[name], tensor=tensor) for name, tensor in of_shape.items()]


def values(reader: Reader, placed: Sequence[Placed]) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the arrays of weights.npz."""
    for each in placed:
        if each.place:
            yield each.place, reader.get_tensor(each.tensor.name) * each.factor
