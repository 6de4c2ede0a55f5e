"""`trainer.freeze`: variables that are not trained, by patterns of their names or of their layers' names."""

from __future__ import annotations

import contextlib
import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfx_estimator.model_fn.step.precision import stored
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.problems import nearest

# The collection of a graph's frozen variables, which are no longer among the trainable ones.
FROZEN = "tfx_estimator_frozen"
_ORDER = "_tfx_estimator_order"
_PART = re.compile(r"(/part_\d+)?(:\d+)?$")
_MOST_NAMES = 8


def own_weights(layer: Any) -> list[Any]:
    """Returns the variables of a layer itself, in Keras's order, which freezing one of them changes."""
    return layer.__dict__.get(_ORDER) or [*layer._trainable_weights, *layer._non_trainable_weights]


def layers_of(layer: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields a layer and those within it, each with the names of the layers that contain it, and its own."""
    path = (*above, layer.name)
    yield path, layer
    for each in layer._flatten_layers(recursive=False, include_self=False):
        yield from layers_of(each, path)


class Freezer:
    """Freezes variables, and counts what each pattern has matched."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = patterns
        self._matched: set[str] = set()
        # By the variables' ids.
        self._frozen: dict[int, tuple[str, bool]] = {}

    def takes(self, *names: str) -> bool:
        """Returns whether a variable or a layer of these names is frozen."""
        found = [each for each in self._patterns if any(fnmatch.fnmatchcase(name, each) for name in names)]
        self._matched.update(found)
        return bool(found)

    def takes_variable(self, variable: Any, *others: str) -> bool:
        """Returns whether a variable is frozen."""
        name, key = _PART.sub("", variable.name), id(*stored([variable]))
        taken = self.takes(name, *others)
        self._frozen[key] = name, taken or self._frozen.get(key, (name, False))[1]
        return taken

    def freeze(self, network: Any) -> list[Any]:
        """Freezes the variables of a Keras layer or model that exist; returns them.

        A layer without a variable to train is frozen as a whole, so that a normalisation computes by its averages.
        """
        frozen = []
        for path, layer in layers_of(network):
            ends = ["/".join(path[place:]) for place in range(len(path))]
            if layer.weights and self.takes(*ends):
                frozen += layer.trainable_weights
                layer.trainable = False
            own = list(layer._trainable_weights)
            taken = []
            for each in own:
                last = _PART.sub("", each.name).rpartition("/")[2]
                if self.takes_variable(each, *(f"{end}/{last}" for end in ends)) or not layer.trainable:
                    taken.append(each)
                    self._frozen[id(*stored([each]))] = _PART.sub("", each.name), True
            for each in layer._non_trainable_weights:
                self.takes(_PART.sub("", each.name))
            frozen += taken
            if taken and len(taken) == len(own) == len(layer.trainable_weights):
                layer.trainable = False
            elif taken and layer.trainable:
                _move(layer, taken)
        return frozen

    def check(self) -> str:
        """Refuses a pattern that has matched nothing; returns how many variables are frozen."""
        for pattern in self._patterns:
            if pattern not in self._matched:
                shown = sorted({name for name, _ in self._frozen.values()})
                heads = [f"{layer}/*" for layer in dict.fromkeys(name.rpartition("/")[0] for name in shown)]
                near = nearest(pattern, [*heads, *shown])
                more = f" and {len(shown) - _MOST_NAMES} more" if len(shown) > _MOST_NAMES else ""
                raise UserCodeError(
                    f"trainer.freeze: no variable or layer of the model matches `{one_line(pattern)}`",
                    expected=f"patterns of the names of its variables: {', '.join(shown[:_MOST_NAMES])}{more}",
                    todo=f"did you mean `{near}`?" if near else "correct the pattern, or remove it",
                )
        count = sum(taken for _, taken in self._frozen.values())
        return f"trainer.freeze: {count} of {len(self._frozen)} variables are not trained"

    @contextlib.contextmanager
    def in_graph(self) -> Iterator[None]:
        """Freezes the variables that a model_fn creates in this context; afterwards checks that it updates none."""

        def create(make: Callable[..., Any], **kwargs: Any) -> Any:
            variable = make(**kwargs)
            if variable.trainable and self.takes_variable(variable):
                leave_out([variable])
            return variable

        with tf.variable_creator_scope(create):
            yield
        for variable in tf.compat.v1.get_collection(FROZEN):
            _refuse_update(variable)


def freeze(network: tf.keras.Model, patterns: Sequence[str]) -> str:
    """Freezes variables of a network with all its variables; returns how many, in words; empty without patterns."""
    if not patterns:
        return ""
    freezer = Freezer(patterns)
    freezer.freeze(network)
    return freezer.check()


def leave_out(variables: Sequence[Any]) -> None:
    """Takes variables out of those that a graph trains."""
    variables = stored(variables)
    trained = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
    known = {id(each) for each in tf.compat.v1.get_collection(FROZEN)}
    for variable in variables:
        for each in _copies(variable):
            each._trainable = False
        if id(variable) not in known:
            tf.compat.v1.add_to_collection(FROZEN, variable)
    gone = {id(each) for each in variables}
    trained[:] = [each for each in trained if id(each) not in gone]


def _copies(variable: Any) -> list[Any]:
    """Returns the variables of all replicas, without the wrapper of `central_storage`."""
    return [getattr(each, "_v", each) for each in getattr(variable, "values", None) or [variable]]


def _move(layer: Any, variables: Sequence[Any]) -> None:
    layer.__dict__.setdefault(_ORDER, own_weights(layer))
    gone = {id(each) for each in variables}
    # In place: an assigned list would be tracked, and saved in checkpoints.
    layer._trainable_weights[:] = [each for each in layer._trainable_weights if id(each) not in gone]
    layer._non_trainable_weights.extend(variables)


def _refuse_update(variable: Any) -> None:
    for each in _copies(variable):
        for operation in each.op.outputs[0].consumers():
            kind = operation.type
            if operation is not each.initializer and ("Apply" in kind or kind.startswith(("Assign", "Scatter"))):
                raise UserCodeError(
                    f"trainer.freeze: {_PART.sub('', variable.name)} is frozen, and the model_fn updates it all the "
                    f"same, by {operation.name}",
                    expected="a model_fn that trains tf.compat.v1.trainable_variables(), or a model's",
                    todo="leave the variable out of its var_list; or remove the pattern",
                )
