"""Warm start of a TF1 graph or a Keras model from another training's weights, matched by variable names."""

from __future__ import annotations

import collections
import contextlib
import fnmatch
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from zipfile import BadZipFile

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from tfx_estimator.model_fn.user_models.freezing import FROZEN, layers_of
from tfx_estimator.model_fn.user_models.weights_file import KerasFile, is_inside, is_within
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.problems import nearest

_OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"
# Moving averages of normalisation: not trainable, but part of the model.
_AVERAGES = ("moving_mean", "moving_variance")
_MOST_NAMES = 8
_FILES = "its .index file and each of its .data files, as they were written"
_SAVE_NAMES = "a file of this format tells a tf.keras.Model alone: save_weights('FILE.h5') keeps the names; "
_NONE: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class Matched:
    """The variables of a model that a checkpoint initialises.

    Args:
        keys: The key of each variable in the checkpoint or file, by the variable's name.
        summary: Their number, and the checkpoint.
        left: The variables left out, with reasons; empty if there are none.
    """

    keys: dict[str, str]
    summary: str
    left: str


def match(
    source: str,
    shapes: Mapping[str, Sequence[int]],
    exclude: Sequence[str],
    repeated: Mapping[str, int] = _NONE,
    part: str = "",
    models: Sequence[tf.keras.Model] = (),
) -> Matched:
    """Finds the weights for a model's variables.

    Args:
        source: Prefix of a checkpoint: of an Estimator, of Keras, or of a SavedModel; or a file of Keras.
        shapes: Shapes of the model's variables, by name.
        exclude: Patterns of names to leave out.
        repeated: Ambiguous names, with the number of the model's variables that share each.
        part: The first components of the names of variables to load, in the source or else in the model.
        models: The Keras models that have these variables, as far as known.
    """
    with _reading(source):
        reader = read_weights(source)
        stored = reader.get_variable_to_shape_map()
        keys = (
            reader.named(models, {*shapes, *repeated}, part)
            if isinstance(reader, KerasFile)
            else _names_in(reader, stored)
        )
    _check_patterns(exclude, [*shapes, *repeated], keys)
    own = _own_scope(shapes)
    inside = {name: key for name, key in keys.items() if is_inside(name, part) or is_inside(key, part)}
    there = {name: key for name, key in keys.items() if key in stored}
    aligned = _aligned({name: key for name, key in there.items() if name in (inside or keys)}, shapes, part)
    if part and inside:
        everywhere = _aligned(there, shapes, part)
        outside = [name for name in shapes if name in everywhere and name not in aligned]
    else:
        outside = _outside(part, shapes, own, models) if part else []
    if not inside and len(outside) == len(shapes):
        raise _no_part(part, source, [name.removeprefix(own) for name in shapes], keys or stored)
    wanted = {name: shape for name, shape in shapes.items() if not _is_any(name, exclude, own) and name not in outside}
    found = {name: aligned[name] for name in wanted if name in aligned}
    other = {name: stored[key] for name, key in found.items() if list(stored[key]) != list(wanted[name])}
    if other and isinstance(reader, KerasFile):
        name, shape = next(iter(other.items()))
        raise UserCodeError(
            f"trainer.warm_start.weights: {name} is {list(wanted[name])} in the model, and {list(shape)} in {source}"
            + (f"; and {len(other) - 1} more differ" if len(other) > 1 else ""),
            expected="variables of the same shapes",
            todo=f"leave out what is new: exclude: [{name.removeprefix(own).rpartition('/')[0] or name}/*]; or name by "
            "prefix the part that is meant",
        )
    taken = {name: key for name, key in found.items() if name not in other}
    with _reading(source):
        for key in taken.values():
            # A graph reads them later, when an error would not name the file.
            reader.get_tensor(key)
    if not taken and (fits := [name for name in shapes if name in aligned and name not in wanted]):
        key, given = ("exclude", ", ".join(exclude)) if exclude else ("prefix", part)
        raise UserCodeError(
            f"trainer.warm_start.{key}: {given} excludes all weights in {source} that match this model: {_named(fits)}",
            expected="patterns that leave some of them" if exclude else "the name of a part with some of them",
            todo=f"correct {key}, or remove it",
        )
    if not taken:
        # The newer files have no names: see KerasFile.
        theirs = keys or stored
        raise UserCodeError(
            f"trainer.warm_start: none of the weights in {source} match this model",
            expected=f"variables of the same names and shapes; the model has {_named(wanted)}",
            todo=f"compare with the checkpoint's: {_named(theirs)}; {_nearest_pair(wanted, theirs)}"
            f"{'' if keys else _SAVE_NAMES}or remove trainer.warm_start",
        )
    left = [f"{name}, which is {list(wanted[name])} here and {list(shape)} there" for name, shape in other.items()]
    left += [f"{name}, which is not there" for name in wanted if name not in found]
    left += [f"{name}, as {count} variables of the model are called" for name, count in repeated.items()]
    left += [f"{name}, by trainer.warm_start.exclude" for name in shapes if _is_any(name, exclude, own)]
    left += [f"{len(outside)} outside of trainer.warm_start.prefix: {_named(outside)}"] if outside else []
    count = len(shapes) + sum(repeated.values())
    return Matched(taken, f"training begins with {len(taken)} of {count} variables from {source}", "; ".join(left))


def read_weights(source: str) -> Any:
    """Opens a checkpoint, or a file of Keras; the two have the same interface."""
    return KerasFile(source) if os.path.isfile(source) else tf.train.load_checkpoint(source)


def _names_in(reader: Any, stored: Mapping[str, Any]) -> dict[str, str]:
    """Returns a checkpoint's keys by the names of variables."""
    if _OBJECTS not in stored:
        return {name: name for name in stored}
    nodes = TrackableObjectGraph.FromString(reader.get_tensor(_OBJECTS)).nodes
    named = {(each.full_name, each.checkpoint_key) for node in nodes for each in node.attributes if each.full_name}
    times = collections.Counter(name for name, _ in named)
    return {name: key for name, key in named if times[name] == 1}


def _outside(part: str, names: Iterable[str], own: str, models: Sequence[tf.keras.Model]) -> list[str]:
    """Returns the names of a model's variables that do not begin with the part that is meant.

    Keras's names of variables leave out the models that contain a layer; here these may be named.
    """
    inner = {
        _name(each)
        for model in models
        for path, layer in layers_of(model)
        if is_within(path, part)
        for each in layer.weights
    }
    return [
        name
        for name in names
        if not (name in inner or is_inside(name, part) or is_inside(name.removeprefix(own), part))
    ]


def _no_part(part: str, source: str, names: Sequence[str], stored: Iterable[str]) -> UserCodeError:
    stored = [*stored]
    if any(each.startswith(part) for each in (*names, *stored)):
        near = f"`{part}*`"
    else:
        near = " or ".join(f"`{each}`" for each in (nearest(part, names), nearest(part, stored)) if each)
    return UserCodeError(
        f"trainer.warm_start.prefix: no variable begins with `{one_line(part)}`, neither of the model nor in {source}",
        expected=f"how some begin: of the model {_named(names)}; there {_named(stored)}",
        todo=f"did you mean {near}?" if near else "correct it, or remove it",
    )


def _nearest_pair(wanted: Iterable[str], stored: Iterable[str]) -> str:
    known = [*stored]
    pairs = ((name, nearest(name, known)) for name in wanted)
    return next((f"nearest are {name} here and {near} there; " for name, near in pairs if near), "")


@contextlib.contextmanager
def _reading(source: str) -> Iterator[None]:
    """Turns an error on a damaged checkpoint or file into one that names it."""
    try:
        yield
    except (tf.errors.OpError, LookupError, OSError, ValueError, RuntimeError, DecodeError, BadZipFile) as error:
        of_keras = os.path.isfile(source)
        raise UserCodeError(
            f"trainer.warm_start: the {'file' if of_keras else 'checkpoint'} {source} is damaged or incomplete: "
            f"{one_line(str(error))[:200]}",
            expected="what Keras's save_weights wrote" if of_keras else _FILES,
            todo=f"copy {'it' if of_keras else 'them'} again from their source, or name another checkpoint",
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


def _aligned(keys: Mapping[str, str], shapes: Mapping[str, Any], part: str = "") -> dict[str, str]:
    """Returns the checkpoint's keys by the model's names.

    An Estimator's graph prefixes the layers' names with the name of the whole model, and Keras does not. `part` may
    begin the names of one of the two only.
    """
    options = [dict(keys)]
    if part:
        first = f"{part.rstrip('/')}/"
        options.append({name.removeprefix(first): key for name, key in keys.items()})
        options.append({first + name: key for name, key in keys.items()})
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


def warm_keras(model: tf.keras.Model, source: str, exclude: Sequence[str], part: str = "") -> Matched:
    """Loads the weights into a Keras model; under a strategy, into all replicas. Arguments as of `match`."""
    # Keras does not prefix the layers of a nested model, so names may repeat.
    times = collections.Counter(map(_name, model.weights))
    weights = {_name(variable): variable for variable in model.weights if times[_name(variable)] == 1}
    shapes = {name: variable.shape.as_list() for name, variable in weights.items()}
    repeated = {name: count for name, count in times.items() if count > 1}
    matched = match(source, shapes, exclude, repeated, part, [model])
    reader = read_weights(source)
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
    names = {_name(each) for each in (*trainable, *tf.compat.v1.get_collection(FROZEN))}
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
