"""The built-in preprocessing_fns of tables: `by_schema` standardises numbers and numbers words, `raw` does neither."""

from __future__ import annotations

import math
from typing import Any, Union

import tensorflow as tf
import tensorflow_transform as tft

from tfx_estimator.pipeline.config.task import REGRESSION

# Rarer words share a bucket with unknown and missing ones.
MOST_WORDS = 10_000
_Feature = Union[tf.Tensor, tf.SparseTensor]


def preprocessing_fn(inputs: dict[str, _Feature], custom_config: dict[str, Any]) -> dict[str, tf.Tensor]:
    """Prepares each column by its type: `by_schema`.

    Args:
        inputs: The columns, as TFX parses them by the schema: one value an example, or none.
        custom_config: The fields of the table's `Task`; `top_k`: so many words of a column are numbered.

    Returns:
        By column, each [batch]: numbers, float32, of mean 0 and variance 1 over the training split, where a missing one
        is the mean; words, int64, their places in the vocabulary by frequency, where other and missing ones share the
        last place. The label: int64, or float32 of a regression. The weight: float32, where a missing one is 1.
    """
    outputs, features = _targets(inputs, custom_config)
    words = {name: _dense(values) for name, values in features.items() if values.dtype == tf.string}
    numbers = {name: values for name, values in features.items() if name not in words}
    if words:
        # A training reads `categories_of` here, and needs no Beam.
        from tfx_estimator.data.words import numbered

        outputs |= numbered(words, custom_config.get("top_k") or MOST_WORDS)
    return outputs | (_standardised(numbers) if numbers else {})


def raw(inputs: dict[str, _Feature], custom_config: dict[str, Any]) -> dict[str, tf.Tensor]:
    """Leaves the columns as they are, for feature columns or layers that preprocess: `raw`.

    Args:
        inputs: The columns, as TFX parses them by the schema: one value an example, or none.
        custom_config: The fields of the table's `Task`.

    Returns:
        By column, each [batch]: float32, int64, or string, where a missing one is 0 or the empty word. The label and
        the weight are those of `by_schema`.
    """
    outputs, features = _targets(inputs, custom_config)
    return outputs | {name: _dense(values) for name, values in features.items()}


def categories_of(schema: Any) -> dict[str, int]:
    """Returns the number of categories of each feature that has them, by Transform's schema of its outputs."""
    domains = {each.name: each.int_domain for each in schema.feature if each.int_domain.is_categorical}
    # Unknown words may be -1: the last category is theirs.
    return {name: int(domain.max) + 1 + (domain.min < 0) for name, domain in domains.items()}


def _targets(inputs: dict[str, _Feature], task: dict[str, Any]) -> tuple[dict[str, tf.Tensor], dict[str, _Feature]]:
    """Returns the label and the weight, prepared, and the other columns."""
    outputs, features = {}, dict(inputs)
    label, weight = task["label"], task["weight"]
    if label in features:
        outputs[label] = _label(features.pop(label), task)
    if weight in features:
        outputs[weight] = tf.cast(_dense(features.pop(weight), 1), tf.float32)
    return outputs, features


def _standardised(numbers: dict[str, _Feature]) -> dict[str, tf.Tensor]:
    """Returns the columns less their means, over their deviations: all as one, or a table of many takes minutes."""
    matrix = tf.sparse.concat(1, [_sparse(values) for values in numbers.values()])
    shape = [-1, len(numbers)]
    given = tf.reshape(tf.sparse.to_dense(matrix.with_values(tf.ones_like(matrix.values))), shape)
    # The moments are those of all values but nan.
    values = tf.reshape(tf.sparse.to_dense(matrix, math.nan), shape)
    scores = tft.scale_to_z_score(values, elementwise=True)
    # A column without any value has no moments.
    is_lost = (given <= 0) | (tf.math.is_nan(scores) & ~tf.math.is_nan(values))
    scaled = tf.where(is_lost, tf.zeros_like(scores), scores)
    return dict(zip(numbers, tf.unstack(scaled, axis=1)))


def _sparse(values: _Feature) -> tf.SparseTensor:
    """Returns a column of numbers, float32 [batch, 1]."""
    if isinstance(values, tf.SparseTensor):
        # Of a batch without any value, the length is 0.
        return tf.SparseTensor(values.indices, tf.cast(values.values, tf.float32), [values.dense_shape[0], 1])
    column = tf.reshape(values, [-1])
    rows = tf.range(tf.size(column, tf.int64))
    return tf.SparseTensor(
        tf.stack([rows, tf.zeros_like(rows)], 1), tf.cast(column, tf.float32), [tf.size(column, tf.int64), 1]
    )


def _label(values: _Feature, task: dict[str, Any]) -> tf.Tensor:
    """Returns the label, [batch]; without one, or of an unknown class, what no head takes: -1, or nan of a regression.

    An assertion would also run where a model is served, whose rows have no label.
    """
    if task["kind"] == REGRESSION:
        return _dense(tf.cast(values, tf.float32), math.nan)
    labels = _dense(values, "" if values.dtype == tf.string else -1)
    if not task["names"]:
        return tf.cast(labels, tf.int64)
    read: Any = str if labels.dtype == tf.string else float if labels.dtype.is_floating else _whole
    # [batch, classes]
    equal = tf.equal(labels[:, tf.newaxis], tf.constant([read(name) for name in task["names"]], labels.dtype))
    return tf.where(tf.reduce_any(equal, 1), tf.argmax(tf.cast(equal, tf.int32), 1), -1)


def _whole(name: str) -> int:
    return int(float(name))


def _dense(values: _Feature, missing: Any = None) -> tf.Tensor:
    """Returns one value an example, [batch]; a missing one is 0, or the empty word, unless another is given."""
    if isinstance(values, tf.SparseTensor):
        # Of a batch without any value, the length is 0.
        column = tf.SparseTensor(values.indices, values.values, [values.dense_shape[0], 1])
        default = ("" if values.dtype == tf.string else 0) if missing is None else missing
        values = tf.sparse.to_dense(column, tf.cast(default, values.dtype) if default != "" else "")
    return tf.reshape(values, [-1])
