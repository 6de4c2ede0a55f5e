"""Batches of an input_fn, and the placeholders that stand in for them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_estimator.model_fn.bridge.kept.parts import components
from tfx_estimator.pipeline.base.errors import DataError

InputFn = Callable[..., Any]
FEATURES, LABELS = "features", "labels"


def read(estimator: Any, input_fn: InputFn, mode: str, count: int) -> tuple[Any, list[Any]]:
    """Calls an input_fn like the Estimator; returns types of features and labels, and the first batches' values."""
    found: list[Any] = []
    with tf.Graph().as_default():
        tf.compat.v1.set_random_seed(estimator.config.tf_random_seed)
        tf.compat.v1.train.create_global_step()
        *given, hooks = estimator._get_features_and_labels_from_input_fn(input_fn, mode)
        given = _mapped(_tensor, given)
        types = _mapped(tf.type_spec_from_value, given)
        ends = contextlib.suppress(tf.errors.OutOfRangeError, StopIteration)
        with tf.compat.v1.train.MonitoredSession(hooks=hooks) as session, ends:
            while len(found) < count:
                features, *labels = session.run([each for each in given if each is not None])
                found.append([features, labels[0] if labels else None])
    if not found:
        raise DataError("the input_fn has no batch", expected="examples", todo="check the files that it reads")
    return types, found


def placeholders(types: Any, is_any_size: bool = False) -> tuple[Any, dict[str, tf.Tensor]]:
    """Creates placeholders in the default graph: features and labels, and the dense placeholders by name."""
    made = _mapped(lambda each: _placeholder(each, is_any_size), types)
    return made, named(made)


def named(given: Any) -> dict[str, Any]:
    """Returns the components of features and labels, by name; of tensors or of values."""
    features, labels = given
    return {**dict(components(features, FEATURES)), **dict(components(labels, LABELS))}


def _mapped(function: Callable[[Any], Any], given: Any) -> Any:
    """Maps all but None, which labels may be."""
    return tf.nest.map_structure(lambda each: None if each is None else function(each), given)


def _tensor(value: Any) -> Any:
    """Returns a tensor; an input_fn without a data set may return NumPy's arrays."""
    return value if isinstance(value, tf.RaggedTensor) else tf.compat.v1.convert_to_tensor_or_sparse_tensor(value)


def by_text(predictions: Any) -> Any:
    """Returns predictions by a text; those of a MultiHead have tuples as names."""
    if not isinstance(predictions, dict):
        return predictions
    return {name if isinstance(name, str) else "/".join(map(str, name)): each for name, each in predictions.items()}


def _placeholder(of: Any, is_any_size: bool) -> Any:
    shape = of.shape
    if is_any_size and shape.rank:
        shape = tf.TensorShape([None, *shape[1:]])
    if isinstance(of, tf.SparseTensorSpec):
        made = [_dense(tf.int64, [None, shape.rank]), _dense(of.dtype, [None]), _dense(tf.int64, [shape.rank])]
        return tf.nest.pack_sequence_as(tf.SparseTensorSpec(shape, of.dtype), made, expand_composites=True)
    if isinstance(of, tf.RaggedTensorSpec):
        inner = of.flat_values_spec.shape if of.flat_values_spec is not None else [None, *shape[of.ragged_rank + 1 :]]
        splits = [_dense(of.row_splits_dtype, [None]) for _ in range(of.ragged_rank)]
        return tf.RaggedTensor.from_nested_row_splits(_dense(of.dtype, inner), splits, validate=False)
    return _dense(of.dtype, shape)


def _dense(dtype: tf.DType, shape: Any) -> tf.Tensor:
    return tf.compat.v1.placeholder(dtype, shape)
