"""Warm start of a TF1 graph or a Keras model from another training's weights, matched by variable names."""

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
# Moving averages of normalisation: not trainable, but part of the model.
_AVERAGES = ("moving_mean", "moving_variance")
_MOST_NAMES = 8
_NONE: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class Matched:
    """The variables of a model that a checkpoint initialises.

    Args:
        keys: The checkpoint's key of each variable, by the variable's name.
        summary: Their number, and the checkpoint.
        left: The variables left out, with reasons; empty if there are none.
    """

    keys: dict[str, str]
    summary: str
    left: str


def match(
    prefix: str, shapes: Mapping[str, Sequence[int]], exclude: Sequence[str], repeated: Mapping[str, int] = _NONE
) -> Matched:
    """Finds the weights for a model's variables.

    Args:
        prefix: Path of the checkpoint: of an Estimator, of Keras, or of a SavedModel.
        shapes: Shapes of the model's variables, by name.
        exclude: Patterns of names to leave out.
        repeated: Ambiguous names, with the number of the model's variables that share each.
    """
    with _reading(prefix):
        reader = tf.train.load_checkpoint(prefix)
        stored = reader.get_variable_to_shape_map()
        objects = reader.get_tensor(_OBJECTS) if _OBJECTS in stored else None
        nodes = TrackableObjectGraph.FromString(objects).nodes if objects is not None else ()
    keys = {name: name for name in stored}
    if objects is not None:
        named = {(each.full_name, each.checkpoint_key) for node in nodes for each in node.attributes if each.full_name}
        times = collections.Counter(name for name, _ in named)
        keys = {name: key for name, key in named if times[name] == 1}
    _check_patterns(exclude, [*shapes, *repeated], keys)
    own = _own_scope(shapes)
    wanted = {name: shape for name, shape in shapes.items() if not _is_any(name, exclude, own)}
    aligned = _aligned({name: key for name, key in keys.items() if key in stored}, shapes)
    found = {name: aligned[name] for name in wanted if name in aligned}
    other = {name: stored[key] for name, key in found.items() if list(stored[key]) != list(wanted[name])}
    taken = {name: key for name, key in found.items() if name not in other}
    with _reading(prefix):
        for key in taken.values():
            # A graph reads them later, when an error would not name the file.
            reader.get_tensor(key)
    if not taken and (fits := [name for name in shapes if name in aligned and name not in wanted]):
        raise UserCodeError(
            f"trainer.warm_start.exclude: {', '.join(exclude)} excludes all weights in {prefix} that match this model: "
            f"{_named(fits)}",
            expected="patterns that leave some of them",
            todo="remove a pattern, or remove trainer.warm_start",
        )
    if not taken:
        raise UserCodeError(
            f"trainer.warm_start: none of the weights in {prefix} match this model",
            expected=f"variables of the same names and shapes; the model has {_named(wanted)}",
            todo=f"compare with the checkpoint's: {_named(keys)}; or remove trainer.warm_start",
        )
    left = [f"{name}, which is {list(wanted[name])} here and {list(shape)} there" for name, shape in other.items()]
    left += [f"{name}, which is not there" for name in wanted if name not in found]
    left += [f"{name}, as {count} variables of the model are called" for name, count in repeated.items()]
    left += [f"{name}, by trainer.warm_start.exclude" for name in shapes if name not in wanted]
    count = len(shapes) + sum(repeated.values())
    return Matched(taken, f"training begins with {len(taken)} of {count} variables from {prefix}", "; ".join(left))


@contextlib.contextmanager
def _reading(prefix: str) -> Iterator[None]:
    """Turns TensorFlow's errors on a damaged checkpoint into one that names it."""
    try:
        yield
    except (tf.errors.OpError, IndexError, ValueError, RuntimeError, DecodeError) as error:
        raise UserCodeError(
            f"trainer.warm_start: the checkpoint {prefix} is damaged or incomplete: {one_line(str(error))[:200]}",
            expected="its .index file and each of its .data files, as they were written",
            todo="copy them again from their source, or name another checkpoint",
        ) from error


def _is_any(name: str, patterns: Sequence[str], own: str) -> bool:
    """True if a name, with or without the model's scope, matches one of the patterns."""
    return any(fnmatch.fnmatchcase(each, pattern) for pattern in patterns for each in (name, name.removeprefix(own)))


def _own_scope(names: Iterable[str]) -> str:
    """Returns the scope of all layers' names in an Estimator's graph, `classifier/`; empty for Keras."""
    parts = [name.split("/") for name in names]
    scopes = {each[0] for each in parts}
    return f"{scopes.pop()}/" if len(scopes) == 1 and any(len(each) > 2 for each in parts) else ""


def _check_patterns(patterns: Sequence[str], names: Sequence[str], stored: Iterable[str]) -> None:
    """Refuses a pattern that matches no variable: the intended one would be loaded after all.

    Args:
        stored: Names in the checkpoint; a pattern may match one that only the checkpoint has.
    """
    own = _own_scope(names)
    for pattern in patterns:
        known = [*((name, own) for name in names), *((name, _own_scope([name])) for name in stored)]
        if not any(_is_any(name, [pattern], scope) for name, scope in known):
            short = [name.removeprefix(own) for name in names]
            heads = [f"{layer}/*" for layer in dict.fromkeys(name.rpartition("/")[0] for name in short) if layer]
            near = nearest(pattern, [*heads, *short])
            raise UserCodeError(
                f"trainer.warm_start.exclude: no variable of the model matches `{one_line(pattern)}`",
                expected=f"patterns of the names of its variables: {_named(short)}",
                todo=f"did you mean `{near}`?" if near else "correct the pattern, or remove it",
            )


def _aligned(keys: Mapping[str, str], shapes: Mapping[str, Any]) -> dict[str, str]:
    """Returns the checkpoint's keys by the model's names.

    An Estimator's graph prefixes the layers' names with the name of the whole model, and Keras does not.
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
    """Loads the weights into a Keras model; under a strategy, into all replicas."""
    # Keras does not prefix the layers of a nested model, so names may repeat.
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
    """Recomputes the state that layers derive from variables, such as Normalization's mean; `load_weights` does so."""
    for layer in model._flatten_layers():
        # A loaded SavedModel may contain objects that are not Keras layers.
        if finalize_layer := getattr(layer, "finalize_state", None):
            finalize_layer()


def of_graph(variables: Sequence[Any], trainable: Sequence[Any]) -> dict[str, list[Any]]:
    """Returns a model's variables in a TF1 graph, by name, without optimizer slots and the global step.

    Returns:
        The shards of each variable, since TF1's canned Estimators partition variables; most have one.
    """
    names = {_name(each) for each in trainable}
    # A mirrored variable is listed under its own name; the replicas' names are ignored.
    parts = {_name(each): each for each in variables}
    found: dict[str, list[Any]] = {}
    for name, each in parts.items():
        part = _part(each)
        whole = part.full_name if part else name
        if name in names or whole.rpartition("/")[2] in _AVERAGES:
            found.setdefault(whole, []).append(each)
    return found


def shape_of(parts: Sequence[Any]) -> list[int]:
    """Returns the shape of a variable in a checkpoint."""
    part = _part(parts[0])
    return list(part.full_shape) if part else parts[0].shape.as_list()


def _part(variable: Any) -> Any:
    """Returns a shard's slice information; None for an unpartitioned variable. A checkpoint stores shards as one."""
    return getattr(variable, "_save_slice_info", None)


def _name(variable: Any) -> str:
    return variable.name.partition(":")[0]
