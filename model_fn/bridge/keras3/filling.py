"""Assigns the weights of a Keras 2 network to its Keras 3 counterpart, and the slots to its optimizer."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfx_estimator.model_fn.bridge.keras3.optimizers import KNOWN, NAME, STEP_PLACE
from tfx_estimator.pipeline.base.errors import UserCodeError

# Rules that find a place, by their names in mapping.json.
_SAME, _ORDER, _OF_WEIGHT = "same name", "order of those with that last name", "slot of the weight"
_NOT_READ = "Keras 3 keeps none: it is not read"

# Index of the variable in Keras 3 -> the place in Keras 2, and the rule.
_Found = dict[int, tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class Weights:
    """The mapping of weights between Keras 2 and Keras 3.

    Args:
        paths: Paths of the variables in Keras 3, in their order.
        places: Their names in Keras 2.
        rules: The rules that found them.
    """

    paths: list[str]
    places: list[str]
    rules: list[str]

    @classmethod
    def place(cls, model: Any, order: Sequence[str], now: Mapping[str, np.ndarray]) -> Weights:
        """Finds the weights of a model, by name and then by order, and assigns them.

        Args:
            order: The weights of Keras 2, in their order.
            now: Their values.

        Raises:
            UserCodeError: One is left over, on either side.
        """
        variables = list(model.weights)
        at = _by_name(variables, order, now)
        if len(at) < len(variables):
            # Prefer order alone to some names: default names of layers contain a counter of the whole process.
            alone = _by_order(variables, order, now, {})
            at = alone if len(alone) == len(variables) else _by_order(variables, order, now, at)
        wrong = [
            f"{each.path} of Keras 3, {list(each.shape)}, has no weight of Keras 2"
            for number, each in enumerate(variables)
            if number not in at
        ]
        taken = {place for place, _ in at.values()}
        over = [place for place in order if place not in taken]
        wrong += [f"{place}, {list(now[place].shape)}, has no place in Keras 3" for place in over]
        if wrong:
            raise UserCodeError(
                "\n".join(["the network of Keras 3 is not that of Keras 2:", *wrong]),
                expected="the same weights, by name, or in the same order",
                todo="give the layers names; or convert to keras2",
            )
        for number, variable in enumerate(variables):
            variable.assign(now[at[number][0]])
        found = [at[number] for number in range(len(variables))]
        return cls([each.path for each in variables], [place for place, _ in found], [rule for _, rule in found])

    def loaded(self, model: Any) -> Weights:
        """Returns the mapping for the saved and loaded model, whose variables may have other paths."""
        paths = [each.path for each in model.weights]
        repeated = sorted(path for path, count in collections.Counter(paths).items() if count > 1)
        if len(paths) != len(self.paths) or repeated:
            raise UserCodeError(
                f"Keras 3 loads {len(paths)} weights of {len(self.paths)}"
                + "".join(f"\n{path} is the name of several" for path in repeated),
                expected="each weight once, with a unique name",
                todo="give layers within layers names that differ; or convert to keras2",
            )
        return dataclasses.replace(self, paths=paths)

    @property
    def mapping(self) -> dict[str, tuple[str, str]]:
        """Path and rule by place."""
        return {place: (path, rule) for path, place, rule in zip(self.paths, self.places, self.rules)}


@dataclasses.dataclass(frozen=True)
class Slots:
    """The mapping of slots: the path of the optimizer's variable, by place; and the places that are not read."""

    weights: Weights
    paths: dict[str, str]
    left: list[str]

    @classmethod
    def place(cls, weights: Weights, options: Mapping[str, Any], places: Sequence[str]) -> Slots:
        """Maps the slots to the variables that Keras 3's optimizer will have.

        Args:
            options: `Optimizer.resolved()`.
            places: Places of all tensors.
        """
        theirs = {ours: name for name, ours in KNOWN[options["name"]][2].items()}
        paths, left = {}, []
        for path, weight in zip(weights.paths, weights.places):
            for ours, name in theirs.items():
                place = f"{weight}/{ours}"
                if place not in places:
                    continue
                # TensorFlow's RMSProp has a momentum slot even without momentum, and overwrites it in each step.
                if options["name"] == "rmsprop" and ours == "momentum" and not options["momentum"]:
                    left.append(place)
                else:
                    paths[place] = f"{NAME}/{_plain(path)}_{name}"
        if lost := sorted({*places} - {*weights.places, *paths, *left}):
            raise UserCodeError(
                f"{', '.join(lost)} has no place in the optimizer of Keras 3",
                expected=f"the slots of {KNOWN[options['name']][0]}",
                todo="convert to keras2",
            )
        return cls(weights, paths, left)

    def write(self, file: str, now: Mapping[str, np.ndarray], step: int) -> None:
        """Writes weights and optimizer variables, by their paths in Keras 3."""
        stored = {path: now[place] for path, place in zip(self.weights.paths, self.weights.places)}
        stored |= {path: now[place] for place, path in self.paths.items()}
        stored[STEP_PLACE] = np.asarray(step)
        np.savez(file, **stored)

    def require_all(self, optimizer: Any) -> None:
        """Refuses an optimizer with an unmapped variable, except for the learning rate, which is in the source."""
        given = {*self.paths.values(), STEP_PLACE, f"{NAME}/learning_rate"}
        if left := sorted({each.path for each in optimizer.variables} - given):
            raise UserCodeError(
                f"the optimizer of Keras 3 has {', '.join(left)}, which the Estimator lacks",
                expected="the slots of the Estimator's",
                todo="convert to keras2",
            )

    @property
    def mapping(self) -> dict[str, tuple[str, str]]:
        """Path and rule by place."""
        found = {place: (path, _OF_WEIGHT) for place, path in self.paths.items()}
        return {**found, **dict.fromkeys(self.left, ("", _NOT_READ))}


def _by_name(variables: Sequence[Any], order: Sequence[str], now: Mapping[str, np.ndarray]) -> _Found:
    named = {_plain(place): place for place in order}
    found: _Found = {}
    for number, variable in enumerate(variables):
        for name in (_plain(variable.path), _plain(variable.path.partition("/")[2])):
            if name in named and tuple(variable.shape) == now[named[name]].shape:
                found[number] = named.pop(name), _SAME
                break
    return found


def _by_order(variables: Sequence[Any], order: Sequence[str], now: Mapping[str, np.ndarray], found: _Found) -> _Found:
    """Adds variables matched in order among those with the same last name, as long as their shapes agree."""
    taken, found = {place for place, _ in found.values()}, dict(found)
    left: dict[str, collections.deque[str]] = collections.defaultdict(collections.deque)
    for place in order:
        if place not in taken:
            left[_last(place)].append(place)
    for number, variable in enumerate(variables):
        places = left[_last(variable.path)]
        if number not in found and places and now[places[0]].shape == tuple(variable.shape):
            found[number] = places.popleft(), _ORDER
    return found


def _plain(name: str) -> str:
    # Keras 3 allows no `/` in a layer's name.
    return name.replace("/", "_")


def _last(name: str) -> str:
    return name.rpartition("/")[2]
