"""The variable of the Keras model for each tensor of an Estimator's checkpoint, and the tensors that have none."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.model_fn.bridge import tensors
from tfx_estimator.model_fn.bridge.tensors import HYPERPARAMETER, SLOT, STEP, WEIGHT, Reader, Tensor
from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.model_fn.step.precision import stored
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.convert.guide import Guide

# Rules that find a place, by their names in mapping.json.
_SAME, _SCOPE, _OF_WEIGHT = "same name", "name without the network's scope", "slot of the weight"
_ORDER, _MAP, _READ = "order of creation", "--map", "read from the training graph"
# The place of tensors that are no variables of the Keras model.
_DECLARED, _LEFT_OUT = "trainer.optimizer", "left out"
# Places by names alone.
_NAMES = Guide()


@dataclasses.dataclass(frozen=True)
class Placed(tensors.Placed):
    """A tensor and its variable in the Keras model, whose name is the place; for a slot, WEIGHT/SLOT."""

    variable: tf.Variable = dataclasses.field(kw_only=True)


class Places:
    """The variables of a compiled model, by name.

    Args:
        model: With all its variables, and those of its optimizer.
    """

    def __init__(self, model: tf.keras.Model) -> None:
        optimizer = model.optimizer
        assert isinstance(optimizer, DeclaredOptimizer)
        times = collections.Counter(map(_name, model.weights))
        # Keras does not prefix the layers of a nested model, so names may repeat.
        self.weights = {_name(each): each for each in model.weights if times[_name(each)] == 1}
        self.repeated = sorted(name for name, count in times.items() if count > 1)
        trained = {_name(each): each for each in stored(model.trainable_variables)}
        self.slots = {
            (name, slot): optimizer.get_slot(variable, slot)
            for name, variable in trained.items()
            for slot in optimizer.slots_of(variable)
        }
        # float16's loss scale is outside of the network's scope.
        self.weights |= {_name(each): each for each in (optimizer.loss_scale.variables if optimizer.loss_scale else ())}
        self.step = optimizer.iterations
        # In creation order.
        self.trained = [_name(each) for each in model.trainable_weights]
        self.others = [_name(each) for each in model.non_trainable_weights]


def place(tensors: Sequence[Tensor], places: Places, guide: Guide = _NAMES) -> list[Placed]:
    """Finds the place of each tensor that must have one.

    Raises:
        UserCodeError: A tensor has no place, a variable has no tensor, or shapes differ.
    """
    used = {line[0] for each in tensors if each.kind == WEIGHT and (line := guide.of(each.name))}
    wrong = [f"the line {pattern} of --map matches no tensor" for pattern in guide.patterns if pattern not in used]
    tensors = [each for each in tensors if _is_placed(each, guide)]
    weights = _weights([each for each in tensors if each.kind == WEIGHT], places, guide)
    found, left = [], []
    for each in tensors:
        if (at := _find(each, places, weights)) is None:
            left.append(each)
        else:
            found.append(at)
    free = [name for name in places.weights if name not in {at for at, _ in weights.values()}]
    wrong += [
        f"{each.name}, a {each.kind} of shape {list(each.shape)}, has no place{_map_hint(each, places, free)}"
        for each in left
        if weights.get(each.name, ("", ""))[1] != _MAP
    ]
    wrong += [
        f"{name} would go to {at} by --map, which the Keras model does not have"
        for name, (at, rule) in weights.items()
        if rule == _MAP and at not in places.weights
    ]
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
            "\n".join(["the checkpoint does not match the Keras model:", *wrong]),
            expected="a place for each tensor, and a tensor for each variable: " + ", ".join(sorted(places.weights)),
            todo="use the network of the run; map the names of renamed layers by --map",
        )
    return found


def unplaced(tensors: Iterable[Tensor], guide: Guide) -> list[dict[str, Any]]:
    """Returns the entries in mapping.json of tensors without a place in the Keras model."""
    found = []
    for each in tensors:
        if not _is_placed(each, guide):
            at, rule = (_LEFT_OUT, _MAP) if guide.left_out(each) else (_DECLARED, _READ)
            entry = {"tensor": each.name, "kind": each.kind, "shape": list(each.shape)}
            found.append({**entry, "place": at, "rule": rule})
    return found


def fill(placed: Iterable[Placed], reader: Reader) -> None:
    """Assigns each variable its tensor's value."""
    for each in placed:
        each.variable.assign(tf.cast(reader.get_tensor(each.tensor.name), each.variable.dtype))


def _is_placed(tensor: Tensor, guide: Guide) -> bool:
    return tensor.kind != HYPERPARAMETER and not guide.left_out(tensor)


def _weights(tensors: Sequence[Tensor], places: Places, guide: Guide) -> dict[str, tuple[str, str]]:
    """Returns place and rule of each weight that a rule finds, by name.

    The user's `--map` comes first, to correct what the other rules would find.
    """
    found = {each.name: (at[1] or "", _MAP) for each in tensors if (at := guide.of(each.name))}
    for rule in (_SAME, _SCOPE):
        names = [each.name for each in tensors if each.name not in found]
        wanted = {name: name if rule == _SAME else name.partition("/")[2] for name in names}
        # Layers in several scopes may have the same name.
        times = collections.Counter([*wanted.values(), *(at for at, _ in found.values())])
        found |= {name: (at, rule) for name, at in wanted.items() if at in places.weights and times[at] == 1}
    by_name = {each.name: each for each in tensors}
    taken = {at for at, _ in found.values()}
    for old, new in ((guide.trained, places.trained), (guide.others, places.others)):
        left = [by_name[name] for name in old if name in by_name and name not in found]
        free = [name for name in new if name not in taken]
        if len(left) == len(free) and all(map(_is_like, left, free, [places.weights.get(each) for each in free])):
            found |= {each.name: (at, _ORDER) for each, at in zip(left, free)}
    return found


def _is_like(tensor: Tensor, name: str, variable: Optional[tf.Variable]) -> bool:
    """True if the last parts of the names, and the shapes, are equal."""
    same_name = tensor.name.rpartition("/")[2] == name.rpartition("/")[2]
    return variable is not None and same_name and list(tensor.shape) == variable.shape.as_list()


def _map_hint(tensor: Tensor, places: Places, free: Sequence[str]) -> str:
    """Suggests a line of `--map` for a weight, with the free places of its shape."""
    fits = [name for name in free if places.weights[name].shape.as_list() == list(tensor.shape)]
    if tensor.kind != WEIGHT or not fits:
        return ""
    other = f", or instead {', '.join(fits[1:])}" if fits[1:] else ""
    return f'; a line of --map gives it one: "{re.escape(tensor.name)}": {fits[0]}{other}'


def _find(tensor: Tensor, places: Places, weights: Mapping[str, tuple[str, str]]) -> Placed | None:
    if tensor.kind == STEP:
        return Placed(tensor, _name(places.step), _SAME, variable=places.step)
    if tensor.kind == SLOT:
        at = weights.get(tensor.weight, ("", ""))[0]
        slot = places.slots.get((at, tensor.slot))
        return None if slot is None else Placed(tensor, f"{at}/{tensor.slot}", _OF_WEIGHT, variable=slot)
    name, rule = weights.get(tensor.name, ("", ""))
    return Placed(tensor, name, rule, variable=places.weights[name]) if name in places.weights else None


def _name(variable: tf.Variable) -> str:
    return str(variable.name.partition(":")[0])
