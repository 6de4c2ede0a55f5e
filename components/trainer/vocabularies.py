"""Weights and slots under another vocabulary: the row of each word is found by the word, never by its place.

Transform orders a vocabulary by frequency, so that of each day has another order: taken over by name and shape alone, a
word would have another one's weights, without an error.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from tfx_estimator.data.table_preprocessing import categories_of
from tfx_estimator.model_fn.tables import scopes
from tfx_estimator.pipeline.base.errors import UserCodeError

_OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"
# The step, of a graph and of a Keras optimizer, and what an early stopping has left.
_BEGINS_ANEW = re.compile(r"(^|/)(global_step|_?iter(ations?)?|save_counter|STOP)(/\.ATTRIBUTES/VARIABLE_VALUE)?$")
# Scopes of TensorFlow's own, which a feature may be called as well; and of crossed features, whose rows are hashes.
_STRUCTURE = re.compile(r"training|linear|dnn|linear_model|input_layer|input_from_feature_columns|\w*_X_\w*")
# A slot's copy on another device, which the graph of a Keras optimizer saves as well.
_COPY = re.compile(r"/replica_\d+$")
# Of a vocabulary, so many words are given to a transform graph, and so many that no data have.
_ASKED, _UNKNOWN = 1_000, 200


@dataclass(frozen=True)
class Vocabulary:
    """The words of a feature, in the order of their numbers.

    Args:
        first: The number of the first word.
        others: The number of places after the words, for other words.
        size: The number of categories, as Transform's schema has it; with that of -1.
        is_feature: Whether the graph has told which feature has these words.
    """

    words: tuple[bytes, ...]
    first: int = 0
    others: int = 0
    size: int = 0
    is_feature: bool = True

    @property
    def lengths(self) -> tuple[int, int, int]:
        """What tables for this vocabulary have: all categories, the places of words and others, or those of words."""
        last = self.first + len(self.words)
        return max(self.size, last + self.others), last + self.others, last


@dataclass
class Carried:
    """What `carry` has done.

    Args:
        moved: Variables, slots among them, by the feature whose words were found again.
        new: The number of words that are new, by feature.
        alike: Variables that stay as they are, with as many rows as a feature that has changed.
    """

    moved: dict[str, list[str]] = field(default_factory=dict)
    new: dict[str, int] = field(default_factory=dict)
    alike: list[str] = field(default_factory=list)


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
    found: dict[str, Vocabulary] = {}
    layer = output.transform_features_layer()
    for column, spec in output.raw_feature_spec().items():
        for known in words.values():
            for feature, value in _answers(layer, column, spec, known).items():
                numbered = _numbering(value, known, sizes.get(feature, 0))
                # A vocabulary may begin with all words of another one.
                if numbered and (feature not in found or len(known) > len(found[feature].words)):
                    found[feature] = numbered
    of_features = {each.words for each in found.values()}
    return found | {
        name: Vocabulary(known, is_feature=False) for name, known in words.items() if known not in of_features
    }


def features_of(transform_graph: str) -> list[str]:
    """Returns the names of the features that a transform graph makes."""
    return list(tft.TFTransformOutput(transform_graph).transformed_feature_spec())


def _answers(layer: Any, column: str, spec: Any, words: Sequence[bytes]) -> dict[str, list[int]]:
    """Returns what each feature that numbers a raw column makes of the words, and of words that no data have."""
    asked: list[Any] = [*words[:_ASKED], *(b"\x01no word %d" % number for number in range(_UNKNOWN))]
    if spec.dtype == tf.int64 and all(word.lstrip(b"-").isdigit() for word in words):
        asked = [*map(int, words[:_ASKED]), *range(-(2**61), -(2**61) + _UNKNOWN)]
    elif spec.dtype != tf.string:
        return {}
    made = layer({column: _column(asked, spec)})
    dense = {
        name: tf.sparse.to_dense(each) if isinstance(each, tf.SparseTensor) else each for name, each in made.items()
    }
    numbers = {name: each.numpy().ravel().tolist() for name, each in dense.items() if each.dtype.is_integer}
    return {name: values for name, values in numbers.items() if len(values) == len(asked)}


def _numbering(places: Sequence[int], words: tuple[bytes, ...], size: int) -> Vocabulary | None:
    """Returns the vocabulary of a feature that numbers the words one after another; None if it does not."""
    given, unknown = places[:-_UNKNOWN], places[-_UNKNOWN:]
    first = given[0] if given else 0
    last = first + len(words)
    is_numbered = list(given) == [*range(first, first + len(given))] and first >= 0
    if not given or not is_numbered or any(first <= place < last for place in unknown):
        return None
    others = max(0, max(unknown) + 1 - last)
    return Vocabulary(words, first, others, max(size, last + others))


def _column(values: Sequence[Any], spec: Any) -> Any:
    """Returns a raw column with one value an example."""
    column = tf.constant(values, spec.dtype)
    if not isinstance(spec, tf.io.VarLenFeature):
        return tf.reshape(column, [-1, *spec.shape])
    rows = tf.range(tf.size(column, tf.int64))
    return tf.SparseTensor(tf.stack([rows, tf.zeros_like(rows)], 1), column, [tf.size(column, tf.int64), 1])


def carry(
    prefix: str,
    target: str,
    old: Mapping[str, Vocabulary],
    new: Mapping[str, Vocabulary],
    declared: Mapping[str, Sequence[str]],
    features: Iterable[str] = (),
    devices: int = 1,
) -> Carried:
    """Writes a checkpoint at step 0 with the weights and slots of another one, each word's at its new place.

    A new word begins as the place of other words was; without one, as the mean of all words.

    Args:
        prefix: Path of the checkpoint: of an Estimator, or of the Keras paths.
        target: Path of the new one.
        old: The vocabularies that the weights were trained with, by feature.
        new: Those that they are for.
        declared: Patterns of the variables' names, by feature; of others, the variables that are named after it.
        features: All features of the model.
        devices: The number of devices that a process trains on.

    Raises:
        UserCodeError: No variable is known for a vocabulary that has changed.
    """
    if unknown := sorted(declared.keys() - old.keys()):
        raise UserCodeError(
            f"trainer.warm_start.vocabularies: {', '.join(unknown)} has no vocabulary",
            expected=f"features that number words: {', '.join(sorted(old)) or 'there are none'}",
            todo="correct the name, or remove it",
        )
    reader = tf.train.load_checkpoint(prefix)
    tensors = {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}
    names = _full_names(tensors)
    if not names:
        tensors = {key: value for key, value in tensors.items() if not _is_copy(key, tensors)}
    changed = {name for name in old if name in new and _order(old[name]) != _order(new[name])}
    known = _Names([*features, *(name for name in old if old[name].is_feature)], declared)
    known.find([names.get(key, key) for key in tensors])
    carried = Carried()
    for key, value in tensors.items():
        if _BEGINS_ANEW.search(key):
            tensors[key] = np.zeros_like(value)
            continue
        variable = names.get(key, key)
        name = known.of(variable)
        rows = len(value) if np.ndim(value) else 0
        # A table of buckets of its own has other rows.
        if name in changed and rows >= old[name].first + len(old[name].words):
            tensors[key] = _moved(value, old[name], new[name])
            carried.moved.setdefault(name, []).append(variable)
        elif not name and any(rows in old[each].lengths for each in changed):
            carried.alike.append(variable)
    # One table may be of several features with the same words.
    done = {(old[name].words, new[name].words) for name in carried.moved}
    for name in sorted(changed):
        if (old[name].words, new[name].words) not in done and declared.get(name) != ():
            raise UserCodeError(
                f"the words of the feature {name} are others than on the earlier day, or in another order, and no "
                "variable of the model is named after it",
                expected="embeddings or weights with a row for each word, whose names hold the feature's",
                todo=f"name them: trainer.warm_start.vocabularies: {{{name}: ['*PATTERN*']}}; or [] if there are none",
            )
        carried.new[name] = len({*new[name].words} - {*old[name].words})
    _write(target, tensors | ({} if names else _copies(tensors, devices - 1)))
    return carried


def _is_copy(key: str, tensors: Mapping[str, Any]) -> bool:
    return bool(_COPY.search(key)) and _COPY.sub("", key) in tensors


def _copies(tensors: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Returns copies of a graph's slots, whose names hold their variables', for further devices."""
    slots = [key for key in tensors if any(f"/{each}/" in f"/{key}" for each in tensors)] if count > 0 else []
    return {f"{key}/replica_{number}": tensors[key] for key in slots for number in range(1, count + 1)}


class _Names:
    """Which variable, or slot of one, has the rows of which feature."""

    def __init__(self, features: Iterable[str], declared: Mapping[str, Sequence[str]]) -> None:
        self._scopes = {scope: name for name, scope in scopes({*features}).items()}
        self._declared = declared
        self._variables: dict[str, str] = {}

    def find(self, variables: Sequence[str]) -> None:
        """Finds the declared variables: a slot's name holds its variable's."""
        for name, patterns in self._declared.items():
            for each in variables:
                if any(fnmatch.fnmatchcase(each, pattern) for pattern in patterns):
                    self._variables[each] = name

    def of(self, variable: str) -> str:
        """Returns the feature of a variable; empty if there is none."""
        for each, name in self._variables.items():
            if f"/{each}/" in f"/{variable}/":
                return name
        for part in variable.split("/"):
            if _STRUCTURE.fullmatch(part):
                continue
            # `shop` of shop, shop_embedding, deep_shop or pickup_shop_shared_embedding; `shop_kind` is another one.
            found = [scope for scope in self._scopes if f"_{scope}_" in f"_{part}_"]
            if found:
                name = self._scopes[max(found, key=len)]
                return "" if name in self._declared else name
        return ""


def _order(vocabulary: Vocabulary) -> tuple[Any, ...]:
    return vocabulary.words, vocabulary.first, vocabulary.others


def _full_names(tensors: Mapping[str, Any]) -> dict[str, str]:
    """Returns the variables' names by the keys of a checkpoint of objects; empty for a graph's, which are the names."""
    if _OBJECTS not in tensors:
        return {}
    nodes = TrackableObjectGraph.FromString(tensors[_OBJECTS]).nodes
    return {each.checkpoint_key: each.full_name for node in nodes for each in node.attributes if each.full_name}


def _moved(value: np.ndarray, old: Vocabulary, new: Vocabulary) -> np.ndarray:
    """Returns the rows in their new order; a table with room for more words keeps its length."""
    places = {word: place for place, word in enumerate(old.words, old.first)}
    last = old.first + len(old.words)
    unknown = value[last : last + old.others] if len(value) >= last + old.others else value[:0]
    begins = (unknown if len(unknown) else value[old.first : last]).mean(0, dtype=np.float64).astype(value.dtype)
    rows = [*value[: old.first]][: new.first]
    rows += [value[places[word]] if word in places else begins for word in new.words]
    rows += [value[last + number] if last + number < len(value) else begins for number in range(new.others)]
    rest = value[last + old.others :]
    # As the model of the new vocabulary will have it; a table of any other length has room for more words.
    length = dict(zip(reversed(old.lengths), reversed(new.lengths))).get(len(value), len(value))
    return np.array([*rows, *rest, *[begins] * length])[:length]


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
