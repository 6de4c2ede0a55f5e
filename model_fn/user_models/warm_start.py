"""Weights of another training, for a model of a TF1 graph or of Keras: by the names of variables."""

from __future__ import annotations

import collections
import contextlib
import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.problems import nearest

_OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"
# Averages of normalisation, which no optimizer trains, and which belong to the model.
_AVERAGES = ("moving_mean", "moving_variance")
_MOST_NAMES = 8
_NONE: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class Matched:
    """What of a model begins with other weights.

    Args:
        keys: Where the checkpoint keeps the value of each variable, by the variable's name.
        said: How many of them there are, and from where.
        left: Which variables are left out, and why; empty if none are.
    """

    keys: dict[str, str]
    said: str
    left: str


def match(
    prefix: str, shapes: Mapping[str, Sequence[int]], exclude: Sequence[str], repeated: Mapping[str, int] = _NONE
) -> Matched:
    """Finds the weights for a model's variables.

    Args:
        prefix: Path of the checkpoint: of an Estimator, of Keras, or of a SavedModel.
        shapes: Of the model's variables, by their names.
        exclude: Patterns of names that are left out.
        repeated: Names that several variables of the model have, which cannot be told apart; and how many.
    """
    with _reading(prefix):
        reader = tf.train.load_checkpoint(prefix)
        there = reader.get_variable_to_shape_map()
        objects = reader.get_tensor(_OBJECTS) if _OBJECTS in there else None
        nodes = TrackableObjectGraph.FromString(objects).nodes if objects is not None else ()
    keys = {name: name for name in there}
    if objects is not None:
        named = {(each.full_name, each.checkpoint_key) for node in nodes for each in node.attributes if each.full_name}
        times = collections.Counter(name for name, _ in named)
        keys = {name: key for name, key in named if times[name] == 1}
    _check_patterns(exclude, [*shapes, *repeated], keys)
    own = _own_scope(shapes)
    wanted = {name: shape for name, shape in shapes.items() if not _is_any(name, exclude, own)}
    aligned = _aligned({name: key for name, key in keys.items() if key in there}, shapes)
    found = {name: aligned[name] for name in wanted if name in aligned}
    other = {name: there[key] for name, key in found.items() if list(there[key]) != list(wanted[name])}
    taken = {name: key for name, key in found.items() if name not in other}
    with _reading(prefix):
        for key in taken.values():
            # In a graph they are read later, where an error names no file.
            reader.get_tensor(key)
    if not taken and (fits := [name for name in shapes if name in aligned and name not in wanted]):
        raise UserCodeError(
            f"trainer.warm_start.exclude: {', '.join(exclude)} leaves nothing of the weights in {prefix} to begin "
            f"with: of this model there are {_named(fits)}",
            expected="patterns that leave some of them",
            todo="remove a pattern, or remove trainer.warm_start",
        )
    if not taken:
        raise UserCodeError(
            f"trainer.warm_start: none of the weights in {prefix} is of this model",
            expected=f"variables of the same names and shapes; the model has {_named(wanted)}",
            todo=f"see what is there: {_named(keys)}; or remove trainer.warm_start",
        )
    left = [f"{name}, which is {list(wanted[name])} here and {list(shape)} there" for name, shape in other.items()]
    left += [f"{name}, which is not there" for name in wanted if name not in found]
    left += [f"{name}, as {count} variables of the model are called" for name, count in repeated.items()]
    left += [f"{name}, by trainer.warm_start.exclude" for name in shapes if name not in wanted]
    count = len(shapes) + sum(repeated.values())
    said = f"training begins with {len(taken)} of {count} variables from {prefix}"
    return Matched(taken, said, "; ".join(left))


@contextlib.contextmanager
def _reading(prefix: str) -> Iterator[None]:
    """Names the checkpoint in what TensorFlow raises of a damaged one."""
    try:
        yield
    except (tf.errors.OpError, IndexError, ValueError, RuntimeError, DecodeError) as error:
        raise UserCodeError(
            f"trainer.warm_start: the checkpoint {prefix} is damaged or incomplete: {one_line(str(error))[:200]}",
            expected="its .index file and each of its .data files, as they were written",
            todo="copy them again from where they come, or name another checkpoint",
        ) from error


def _is_any(name: str, patterns: Sequence[str], own: str) -> bool:
    """Does a name, with the model's own in front or without, fit one of the patterns."""
    return any(fnmatch.fnmatchcase(each, pattern) for pattern in patterns for each in (name, name.removeprefix(own)))


def _own_scope(names: Iterable[str]) -> str:
    """What an Estimator's graph puts in front of the names of all layers, `classifier/`; Keras puts nothing there."""
    parts = [name.split("/") for name in names]
    scopes = {each[0] for each in parts}
    return f"{scopes.pop()}/" if len(scopes) == 1 and any(len(each) > 2 for each in parts) else ""


def _check_patterns(patterns: Sequence[str], names: Sequence[str], there: Iterable[str]) -> None:
    """Refuses a pattern that is of no variable: the one that was meant would be taken after all.

    Args:
        there: Of the checkpoint's; what only that has is left out in any case.
    """
    own = _own_scope(names)
    for pattern in patterns:
        known = [*((name, own) for name in names), *((name, _own_scope([name])) for name in there)]
        if not any(_is_any(name, [pattern], scope) for name, scope in known):
            short = [name.removeprefix(own) for name in names]
            heads = [f"{layer}/*" for layer in dict.fromkeys(name.rpartition("/")[0] for name in short) if layer]
            near = nearest(pattern, [*heads, *short])
            raise UserCodeError(
                f"trainer.warm_start.exclude: no variable of the model fits `{one_line(pattern)}`",
                expected=f"patterns of the names of its variables: {_named(short)}",
                todo=f"did you mean `{near}`?" if near else "correct the pattern, or remove it",
            )


def _aligned(keys: Mapping[str, str], shapes: Mapping[str, Any]) -> dict[str, str]:
    """The checkpoint's keys by names as the model has them.

    An Estimator's graph puts the name of the whole model in front of those of its layers, and Keras does not.
    """
    options = [dict(keys)]
    for scope in sorted({name.partition("/")[0] for name in keys}):
        inner = f"{scope}/"
        options.append({name.removeprefix(inner): key for name, key in keys.items() if name.startswith(inner)})
    for scope in sorted({name.partition("/")[0] for name in shapes}):
        options.append({f"{scope}/{name}": key for name, key in keys.items()})
    return max(options, key=lambda option: len(option.keys() & shapes.keys()))


def _named(names: Iterable[str]) -> str:
    ordered = sorted(name for name in names if name)
    more = f" and {len(ordered) - _MOST_NAMES} more" if len(ordered) > _MOST_NAMES else ""
    return ", ".join(ordered[:_MOST_NAMES]) + more or "none"


def warm_keras(model: tf.keras.Model, prefix: str, exclude: Sequence[str]) -> Matched:
    """Gives a Keras model the weights; under a strategy all replicas get them."""
    # Keras names the layers of a model within a model as if they were alone.
    times = collections.Counter(map(_name, model.weights))
    weights = {_name(variable): variable for variable in model.weights if times[_name(variable)] == 1}
    shapes = {name: variable.shape.as_list() for name, variable in weights.items()}
    matched = match(prefix, shapes, exclude, {name: count for name, count in times.items() if count > 1})
    reader = tf.train.load_checkpoint(prefix)
    for name, key in matched.keys.items():
        weights[name].assign(reader.get_tensor(key))
    finalize(model)
    return matched


def finalize(model: tf.keras.Model) -> None:
    """Has each layer derive anew what it keeps beside its variables, as Keras's own `load_weights` does.

    `Normalization` keeps its mean so.
    """
    for layer in model._flatten_layers():
        # A loaded SavedModel may hold what is no layer of Keras's.
        if finalize_layer := getattr(layer, "finalize_state", None):
            finalize_layer()


def of_graph(variables: Sequence[Any], trainable: Sequence[Any]) -> dict[str, list[Any]]:
    """The variables of a model in a TF1 graph, by name: without an optimizer's slots, and without the step.

    Returns:
        The parts of each variable, as the layers of TensorFlow's canned Estimators of TF1 are cut into; most have one.
    """
    names = {_name(each) for each in trainable}
    # A mirrored variable is known as one; what its replicas are called else is of no interest.
    parts = {_name(each): each for each in variables}
    found: dict[str, list[Any]] = {}
    for name, each in parts.items():
        part = _part(each)
        whole = part.full_name if part else name
        if name in names or whole.rpartition("/")[2] in _AVERAGES:
            found.setdefault(whole, []).append(each)
    return found


def shape_of(parts: Sequence[Any]) -> list[int]:
    """Returns the shape of a variable as a checkpoint has it."""
    part = _part(parts[0])
    return list(part.full_shape) if part else parts[0].shape.as_list()


def _part(variable: Any) -> Any:
    """Which part of a larger variable this is; None if it is a whole one. A checkpoint holds these as one."""
    return getattr(variable, "_save_slice_info", None)


def _name(variable: Any) -> str:
    return variable.name.partition(":")[0]
