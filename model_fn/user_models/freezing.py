"""`trainer.freeze`: variables that are not trained, by patterns of their names or of their layers' names."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
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
_PART = re.compile(r"(/part_\d+)?(:\d+)?$")
_MOST_NAMES = 8
# Operations that change a variable, by their types.
_UPDATE = re.compile("Apply|^Assign|^(Resource)?Scatter|SliceAssign")


def own_weights(layer: Any) -> list[Any]:
    """Returns the variables of a layer itself, in Keras's order."""
    return [*layer._trainable_weights, *layer._non_trainable_weights]


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
        # Layers of which only some variables are frozen so far, with these, by their ids.
        self._parts: dict[int, tuple[Any, list[str]]] = {}

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
        inner = [(["/".join(path[at:]) for at in range(len(path))], layer) for path, layer in layers_of(network)]
        for ends, layer in inner:
            if layer.weights and self.takes(*ends):
                frozen += layer.trainable_weights
                layer.trainable = False
        # Those within a layer first: it may have nothing else to train.
        for ends, layer in reversed(inner):
            own = own_weights(layer)
            taken = []
            for each in own:
                name = _PART.sub("", each.name)
                names = [f"{end}/{name.rpartition('/')[2]}" for end in ends]
                trains = any(each is other for other in layer._trainable_weights)
                if self.takes_variable(each, *names) if trains else self.takes(name, *names):
                    taken.append(each)
                if trains and not layer.trainable:
                    self._frozen[id(*stored([each]))] = name, True
            trained = [each for each in layer._trainable_weights if id(each) not in set(map(id, taken))]
            within = layer._flatten_layers(include_self=False)
            others = any(each.trainable and (each._trainable_weights or not each.built) for each in within)
            if taken and not trained and not others and (layer._trainable_weights or len(taken) == len(own)):
                layer.trainable = False
            if not layer.trainable:
                frozen += layer._trainable_weights
            elif taken:
                self._parts[id(layer)] = layer, [_PART.sub("", each.name) for each in taken]
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
        for layer, names in self._parts.values():
            # A layer that contains it may have been frozen since.
            if layer.trainable:
                raise UserCodeError(
                    f"trainer.freeze: only a part of the layer `{layer.name}` matches: {', '.join(names)}",
                    expected="whole layers of Keras: it saves the variables of a layer by their order, in which those "
                    "that are trained come first; and averages stay only if the layer does",
                    todo=f"name the layer: `{layer.name}`; or correct the pattern",
                )
        count = sum(taken for _, taken in self._frozen.values())
        return f"trainer.freeze: {count} of {len(self._frozen)} variables are not trained"

    @contextlib.contextmanager
    def in_graph(self) -> Iterator[None]:
        """Freezes the variables that a model_fn creates in this context."""

        def create(make: Callable[..., Any], **kwargs: Any) -> Any:
            variable = make(**kwargs)
            if variable.trainable and self.takes_variable(variable):
                leave_out([variable])
            return variable

        with tf.variable_creator_scope(create):
            yield


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


def refuse_updates(train_op: Any) -> None:
    """Refuses a training step of a graph that updates a frozen variable; initialisers may do so."""
    frozen = {
        each.op.name: _PART.sub("", variable.name)
        for variable in tf.compat.v1.get_collection(FROZEN)
        for each in _copies(variable)
    }
    open_ones = [getattr(each, "op", each) for each in tf.nest.flatten(train_op)]
    library = _Library(tf.compat.v1.get_default_graph())
    seen = set(open_ones)
    while open_ones:
        operation = open_ones.pop()
        for place, each in enumerate(operation.inputs):
            if each.op.name in frozen and library.updates(operation.node_def, place):
                raise UserCodeError(
                    f"trainer.freeze: {frozen[each.op.name]} is frozen, and the model_fn updates it all the same, by "
                    f"{operation.name}",
                    expected="a model_fn that trains tf.compat.v1.trainable_variables(), or a model's",
                    todo="leave the variable out of its var_list; or remove the pattern",
                )
        before = {*(each.op for each in operation.inputs), *operation.control_inputs} - seen
        seen |= before
        open_ones += before


class _Library:
    """The functions of a graph, such as the branches of a `tf.cond`."""

    def __init__(self, graph: tf.Graph) -> None:
        self._graph = graph

    @functools.cached_property
    def _functions(self) -> dict[str, Any]:
        return {each.signature.name: each for each in self._graph.as_graph_def().library.function}

    def updates(self, node: Any, place: int) -> bool:
        """Returns whether an operation changes the variable that it gets at this place."""
        if _UPDATE.search(node.op):
            return place == 0
        called = [each.func.name for each in node.attr.values() if each.HasField("func")]
        called += [each.name for value in node.attr.values() for each in value.list.func]
        count = sum(not each.startswith("^") for each in node.input)
        for function in (self._functions[name] for name in called if name in self._functions):
            given = function.signature.input_arg
            # A condition comes before the arguments.
            argument = place - (count - len(given))
            if argument >= 0 and any(
                name == given[argument].name and self.updates(each, at)
                for each in function.node_def
                for at, name in enumerate(each.input)
            ):
                return True
        return False
