"""Weights and slots under another vocabulary: the row of each word is found by the word, never by its place.

Transform orders a vocabulary by frequency, so that of each day has another order: taken over by name and shape alone, a
word would have another one's weights, without an error.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from tfx_estimator.data.table_preprocessing import categories_of
from tfx_estimator.pipeline.base.errors import UserCodeError

_OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"
# The step, of a graph and of a Keras optimizer, and what an early stopping has left.
_BEGINS_ANEW = re.compile(r"(^|/)(global_step|_?iter(ations?)?|save_counter|STOP)(/\.ATTRIBUTES/VARIABLE_VALUE)?$")
# Of a vocabulary, so many words are given to a transform graph, and one that no data have.
_ASKED, _NO_WORD, _NO_NUMBER = 1_000, b"\x01no word\x01", -(2**61)


@dataclass(frozen=True)
class Vocabulary:
    """The words of a feature, in the order of their numbers, and the number of places after them for other words."""

    words: tuple[bytes, ...]
    others: int

    @property
    def size(self) -> int:
        """The number of categories."""
        return len(self.words) + self.others


@dataclass
class Carried:
    """What `carry` has done.

    Args:
        moved: Variables, slots among them, by the vocabulary whose words were found again.
        new: The number of words that are new, by vocabulary.
    """

    moved: dict[str, list[str]] = field(default_factory=dict)
    new: dict[str, int] = field(default_factory=dict)


def read_vocabularies(transform_graph: str) -> dict[str, Vocabulary]:
    """Reads the vocabularies of a transform graph, by the features that they number.

    Which these are, the graph itself tells: given its words, a feature returns their places. One that no raw column
    alone decides keeps the name of its file.
    """
    output = tft.TFTransformOutput(transform_graph)
    place = os.path.join(transform_graph, output.TRANSFORMED_METADATA_DIR, output.ASSET_MAP)
    if not tf.io.gfile.exists(place):
        return {}
    with tf.io.gfile.GFile(place) as file:
        words = {name: tuple(output.vocabulary_by_name(name)) for name in json.load(file)}
    sizes = categories_of(output.transformed_metadata.schema)
    found = {}
    for name, features in _numbered(output, words).items():
        for feature in features or [name]:
            found[feature] = Vocabulary(words[name], max(0, sizes.get(feature, 0) - len(words[name])))
    return found


def _numbered(output: tft.TFTransformOutput, words: Mapping[str, Sequence[bytes]]) -> dict[str, list[str]]:
    """Returns the features that number each vocabulary's words."""
    layer = output.transform_features_layer()
    found: dict[str, list[str]] = {name: [] for name in words}
    for column, spec in output.raw_feature_spec().items():
        for name, known in words.items():
            asked: list[Any] = [*known[:_ASKED], _NO_WORD]
            if spec.dtype == tf.int64 and all(word.lstrip(b"-").isdigit() for word in known):
                asked = [*map(int, known[:_ASKED]), _NO_NUMBER]
            elif spec.dtype != tf.string:
                continue
            for feature, value in layer({column: _column(asked, spec)}).items():
                value = tf.sparse.to_dense(value) if isinstance(value, tf.SparseTensor) else value
                places = value.numpy().ravel().tolist() if value.dtype.is_integer else []
                is_numbered = places[:-1] == [*range(len(asked) - 1)] and not 0 <= places[-1] < len(known)
                if len(places) == len(asked) and is_numbered and feature not in found[name]:
                    found[name].append(feature)
    return found


def _column(values: Sequence[Any], spec: Any) -> Any:
    """Returns a raw column with one value an example."""
    column = tf.constant(values, spec.dtype)
    if isinstance(spec, tf.io.VarLenFeature):
        return _sparse(column)
    return tf.reshape(column, [-1, *spec.shape])


def _sparse(column: tf.Tensor) -> tf.SparseTensor:
    rows = tf.range(tf.size(column, tf.int64))
    return tf.SparseTensor(tf.stack([rows, tf.zeros_like(rows)], 1), column, [tf.size(column, tf.int64), 1])


def carry(
    prefix: str,
    target: str,
    old: Mapping[str, Vocabulary],
    new: Mapping[str, Vocabulary],
    declared: Mapping[str, Sequence[str]],
) -> Carried:
    """Writes a checkpoint at step 0 with the weights and slots of another one, each word's at its new place.

    A new word begins as the place of other words was; without one, as the mean of all words.

    Args:
        prefix: Path of the checkpoint: of an Estimator, or of the Keras paths.
        target: Path of the new one.
        old: The vocabularies that the weights were trained with, by feature.
        new: Those that they are for.
        declared: Patterns of the variables' names, by vocabulary; of others, the variables that are named after it.

    Raises:
        UserCodeError: No variable is known for a vocabulary that has changed.
    """
    reader = tf.train.load_checkpoint(prefix)
    changed = [name for name in old if name in new and old[name].words != new[name].words]
    tensors = {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}
    names = _full_names(tensors)
    carried = Carried()
    for key, value in tensors.items():
        if _BEGINS_ANEW.search(key):
            tensors[key] = np.zeros_like(value)
            continue
        name = _vocabulary_of(names.get(key, key), changed, old, declared)
        # A table of buckets of its own has other rows.
        if name and np.ndim(value) and len(value) >= len(old[name].words):
            tensors[key] = _moved(value, old[name], new[name])
            carried.moved.setdefault(name, []).append(names.get(key, key))
    for name in changed:
        if name not in carried.moved and declared.get(name) != ():
            raise UserCodeError(
                f"the words of the feature {name} are others than on the earlier day, or in another order, and no "
                "variable of the model is named after it",
                expected="embeddings or weights with a row for each word, whose names hold the feature's",
                todo=f"name them: trainer.warm_start.vocabularies: {{{name}: ['*PATTERN*']}}; or [] if there are none",
            )
        carried.new[name] = len({*new[name].words} - {*old[name].words})
    _write(target, tensors)
    return carried


def _full_names(tensors: Mapping[str, Any]) -> dict[str, str]:
    """Returns the variables' names by the keys of a checkpoint of objects; empty for a graph's, which are the names."""
    if _OBJECTS not in tensors:
        return {}
    nodes = TrackableObjectGraph.FromString(tensors[_OBJECTS]).nodes
    return {each.checkpoint_key: each.full_name for node in nodes for each in node.attributes if each.full_name}


def _vocabulary_of(
    variable: str, changed: Sequence[str], known: Mapping[str, Any], declared: Mapping[str, Sequence[str]]
) -> str:
    """Returns the changed vocabulary whose words are the rows of a variable; empty if there is none."""
    for name, patterns in declared.items():
        if any(fnmatch.fnmatchcase(variable, pattern) for pattern in patterns):
            return name if name in changed else ""
    found = _named_after(variable, [name for name in known if name not in declared])
    return found if found in changed else ""


def _named_after(variable: str, names: Sequence[str]) -> str:
    """Returns the longest name that stands in a variable's: `shop` in linear_model/shop/weights, or deep_shop/rows."""
    is_held = (name for name in names if re.search(rf"(^|[/_.]){re.escape(name)}([/_.:]|$)", variable))
    return max(is_held, key=len, default="")


def _moved(value: np.ndarray, old: Vocabulary, new: Vocabulary) -> np.ndarray:
    """Returns the rows in their new order; a table with room for more words keeps its length."""
    places = {word: place for place, word in enumerate(old.words)}
    words = len(old.words)
    unknown = value[words : old.size] if old.others and len(value) >= old.size else value[:words]
    begins = unknown.mean(0, dtype=np.float64).astype(value.dtype)
    rows = [value[places[word]] if word in places else begins for word in new.words]
    rows += [value[words + number] if words + number < len(value) else begins for number in range(new.others)]
    length = new.size if len(value) == old.size or len(value) == words else len(value)
    return np.array([*rows, *value[len(rows) :]])[:length]


def _write(target: str, tensors: Mapping[str, Any]) -> None:
    tf.io.gfile.makedirs(os.path.dirname(target))
    names = sorted(tensors)
    with tf.device("cpu:0"):
        tf.raw_ops.SaveV2(
            prefix=target,
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[tf.constant(tensors[name]) for name in names],
        )
