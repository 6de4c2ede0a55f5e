"""Where each tensor of an Estimator's checkpoint goes in the Keras model; and what has no place."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.model_fn.step.precision import stored
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.convert.tensors import SLOT, STEP, WEIGHT, Tensor

# The rules that find a place, as mapping.json names them.
_SAME, _SCOPE, _OF_WEIGHT = "same name", "name without the network's scope", "slot of the weight"


@dataclasses.dataclass(frozen=True)
class Placed:
    """A tensor and its place.

    Args:
        place: Name of the variable in the Keras model; of a slot, WEIGHT/SLOT.
        rule: That found it.
    """

    tensor: Tensor
    place: str
    variable: tf.Variable
    rule: str

    def to_dict(self) -> dict[str, Any]:
        """Returns its entry in mapping.json."""
        tensor = self.tensor
        found = {"tensor": tensor.name, "kind": tensor.kind, "shape": list(tensor.shape)}
        return {**found, "place": self.place, "rule": self.rule}


class Places:
    """The variables of a compiled model, by their names.

    Args:
        model: With all its variables, and those of its optimizer.
    """

    def __init__(self, model: tf.keras.Model) -> None:
        optimizer = model.optimizer
        assert isinstance(optimizer, DeclaredOptimizer)
        times = collections.Counter(map(_name, model.weights))
        # Keras names the layers of a model within a model as if they were alone.
        self.weights = {_name(each): each for each in model.weights if times[_name(each)] == 1}
        self.repeated = sorted(name for name, count in times.items() if count > 1)
        trained = {_name(each): each for each in stored(model.trainable_variables)}
        self.slots = {
            (name, slot): optimizer.get_slot(variable, slot)
            for name, variable in trained.items()
            for slot in optimizer.slots_of(variable)
        }
        # Of float16, outside of the network's scope.
        self.weights |= {_name(each): each for each in (optimizer.loss_scale.variables if optimizer.loss_scale else ())}
        self.step = optimizer.iterations


def place(tensors: Sequence[Tensor], places: Places) -> list[Placed]:
    """Finds the place of each tensor.

    Raises:
        UserCodeError: A tensor has no place, a variable has no tensor, or a shape is another.
    """
    weights = {each.name: _weight(each, places) for each in tensors if each.kind == WEIGHT}
    found, left = [], []
    for each in tensors:
        if (at := _find(each, places, weights)) is None:
            left.append(each)
        else:
            found.append(at)
    wrong = [f"{each.name}, a {each.kind} of shape {list(each.shape)}, has no place" for each in left]
    wrong += [
        f"{each.tensor.name} is {list(each.tensor.shape)}, and {each.place} is {each.variable.shape.as_list()}"
        for each in found
        if list(each.tensor.shape) != each.variable.shape.as_list()
    ]
    taken = collections.Counter(each.place for each in found)
    wrong += [f"{name} would be given {count} tensors" for name, count in taken.items() if count > 1]
    slots = [f"{name}/{slot}" for name, slot in places.slots]
    wanted = [*places.weights, *slots, _name(places.step)]
    wrong += [f"{name} of the Keras model has no tensor" for name in wanted if name not in taken]
    wrong += [f"{name} is the name of several variables of the Keras model" for name in places.repeated]
    if wrong:
        raise UserCodeError(
            "\n".join(["the checkpoint is not that of the Keras model:", *wrong]),
            expected="a place for each tensor, and a tensor for each variable: " + ", ".join(sorted(places.weights)),
            todo="have the module of trainer.model be what it was when the run trained it",
        )
    return found


def fill(placed: Iterable[Placed], reader: tf.train.CheckpointReader) -> None:
    """Gives each variable its tensor's value."""
    for each in placed:
        each.variable.assign(tf.cast(reader.get_tensor(each.tensor.name), each.variable.dtype))


def _weight(tensor: Tensor, places: Places) -> tuple[str, str]:
    """The name of a weight's variable and the rule that found it; both empty if none did."""
    for name, rule in ((tensor.name, _SAME), (tensor.name.partition("/")[2], _SCOPE)):
        if name in places.weights:
            return name, rule
    return "", ""


def _find(tensor: Tensor, places: Places, weights: Mapping[str, tuple[str, str]]) -> Placed | None:
    if tensor.kind == STEP:
        return Placed(tensor, _name(places.step), places.step, _SAME)
    if tensor.kind == SLOT:
        at = weights.get(tensor.weight, ("", ""))[0]
        slot = places.slots.get((at, tensor.slot))
        return None if slot is None else Placed(tensor, f"{at}/{tensor.slot}", slot, _OF_WEIGHT)
    name, rule = weights[tensor.name]
    return Placed(tensor, name, places.weights[name], rule) if name else None


def _name(variable: tf.Variable) -> str:
    return str(variable.name.partition(":")[0])
