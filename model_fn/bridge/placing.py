"""The place in a Keras model of each tensor of an Estimator's checkpoint, and the tensors that have none."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Optional

from tfx_estimator.model_fn.bridge.tensors import HYPERPARAMETER, SLOT, STEP, WEIGHT, Placed, Tensor
from tfx_estimator.pipeline.base.errors import UserCodeError

# Rules that find a place, by their names in mapping.json.
_SAME, _SCOPE, _OF_WEIGHT = "same name", "name without the network's scope", "slot of the weight"
_ORDER, _MAP, _READ = "order of creation", "--map", "read from the training graph"
_NOT_READ = "the model keeps none: it is not read"
# The place of tensors that are no variables of the Keras model.
_DECLARED, _LEFT_OUT = "trainer.optimizer", "left out"

_Shape = Sequence[int]


@dataclasses.dataclass(frozen=True)
class Guide:
    """What names do not determine: lines of `--map`, None to leave out; the Estimator's variables in creation order."""

    patterns: Mapping[str, Optional[str]] = dataclasses.field(default_factory=dict)
    trained: Sequence[str] = ()
    others: Sequence[str] = ()

    def of(self, name: str) -> Optional[tuple[str, Optional[str]]]:
        """Returns the first pattern that matches a tensor's whole name, with the tensor's place; None if none does."""
        for pattern, place in self.patterns.items():
            if found := re.fullmatch(pattern, name):
                return pattern, place if place is None else found.expand(place)
        return None

    def left_out(self, tensor: Tensor) -> bool:
        """True if `--map` leaves out the tensor, or the weight of a slot."""
        return (found := self.of(tensor.weight or tensor.name)) is not None and found[1] is None

    def places(self, tensor: Tensor) -> bool:
        """True if the tensor must have a place."""
        return tensor.kind != HYPERPARAMETER and not self.left_out(tensor)


@dataclasses.dataclass(frozen=True)
class Places:
    """The variables of a Keras model.

    Args:
        weights: Shapes by name.
        slots: Place and shape, by the weight's name and the slot; without a place it is not read.
        needed: Places that must be given a tensor.
        repeated: Names that several variables have.
        aliases: Names of weights by the names that they may have in the checkpoint; empty if these are the same.
    """

    weights: Mapping[str, _Shape]
    slots: Mapping[tuple[str, str], tuple[str, _Shape]]
    step: str
    trained: Sequence[str]
    others: Sequence[str]
    needed: Sequence[str]
    repeated: Sequence[str] = ()
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def named(self, name: str) -> str:
        """Returns the name of a weight by one in the checkpoint; the same if there is none."""
        return self.aliases.get(plain(name), name)


def plain(name: str) -> str:
    """Returns a name in the form of all names of aliases: Keras 3 allows no `/` in a layer's name."""
    return name.replace("/", "_")


def place(tensors: Sequence[Tensor], places: Places, guide: Guide) -> list[Placed]:
    """Finds the place of each tensor that must have one."""
    used = {line[0] for each in tensors if each.kind == WEIGHT and (line := guide.of(each.name))}
    wrong = [f"the line {pattern} of --map matches no tensor" for pattern in guide.patterns if pattern not in used]
    tensors = [each for each in tensors if guide.places(each)]
    weights = _weights([each for each in tensors if each.kind == WEIGHT], places, guide)
    found, left = [], []
    for each in tensors:
        if (at := _find(each, places, weights)) is None:
            left.append(each)
            continue
        found.append(at[0])
        if list(each.shape) != list(at[1]):
            wrong.append(f"{each.name} is {list(each.shape)}, and {at[0].place} is {list(at[1])}")
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
    taken = collections.Counter(each.place for each in found if each.place)
    wrong += [f"{name} would be given {count} tensors" for name, count in taken.items() if count > 1]
    wrong += [f"{name} of the Keras model has no tensor" for name in places.needed if name not in taken]
    wrong += [f"{name} is the name of several variables of the Keras model" for name in places.repeated]
    if wrong:
        raise UserCodeError(
            "\n".join(["the checkpoint does not match the Keras model:", *wrong]),
            expected="a place for each tensor, and a tensor for each variable: " + ", ".join(sorted(places.weights)),
            todo="use the network of the run; map the names of renamed layers by --map",
        )
    return found


def unplaced(tensors: Iterable[Tensor], guide: Guide) -> list[Placed]:
    """Returns the tensors without a place in the Keras model, for mapping.json."""
    left = [each for each in tensors if not guide.places(each)]
    return [Placed(each, *((_LEFT_OUT, _MAP) if guide.left_out(each) else (_DECLARED, _READ))) for each in left]


def _weights(tensors: Sequence[Tensor], places: Places, guide: Guide) -> dict[str, tuple[str, str]]:
    """Returns place and rule of each weight that a rule finds, by name.

    The user's `--map` comes first, to correct what the other rules would find.
    """
    found = {each.name: (places.named(at[1] or ""), _MAP) for each in tensors if (at := guide.of(each.name))}
    for rule in (_SAME, _SCOPE):
        names = [each.name for each in tensors if each.name not in found]
        wanted = {name: places.named(name if rule == _SAME else name.partition("/")[2]) for name in names}
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


def _is_like(tensor: Tensor, name: str, shape: Optional[_Shape]) -> bool:
    """True if the last parts of the names, and the shapes, are equal."""
    same_name = tensor.name.rpartition("/")[2] == name.rpartition("/")[2]
    return shape is not None and same_name and list(tensor.shape) == list(shape)


def _map_hint(tensor: Tensor, places: Places, free: Sequence[str]) -> str:
    """Suggests a line of `--map` for a weight, with the free places of its shape."""
    fits = [name for name in free if list(places.weights[name]) == list(tensor.shape)]
    if tensor.kind != WEIGHT or not fits:
        return ""
    other = f", or instead {', '.join(fits[1:])}" if fits[1:] else ""
    return f'; a line of --map gives it one: "{re.escape(tensor.name)}": {fits[0]}{other}'


def _find(tensor: Tensor, places: Places, weights: Mapping[str, tuple[str, str]]) -> Optional[tuple[Placed, _Shape]]:
    if tensor.kind == STEP:
        return Placed(tensor, places.step, _SAME), tensor.shape
    name, rule = weights.get(tensor.weight or tensor.name, ("", ""))
    if tensor.kind == SLOT:
        place, shape = places.slots.get((name, tensor.slot), (None, ()))
        return None if place is None else (Placed(tensor, place, _OF_WEIGHT if place else _NOT_READ), shape)
    return (Placed(tensor, name, rule), places.weights[name]) if name in places.weights else None
