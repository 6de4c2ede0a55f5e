"""Rows of batches: the examples of dense, sparse and ragged tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

KINDS = (tf.TensorSpec, tf.SparseTensorSpec, tf.RaggedTensorSpec)


def size_of(value: Any) -> int:
    """Counts the examples of a batch that was read.

    Args:
        value: What `session.run` returned for one tensor of it: an array, a SparseTensorValue or a RaggedTensorValue.

    Returns:
        The size of the first dimension; -1 of a scalar.
    """
    if isinstance(value, tf.compat.v1.SparseTensorValue):
        return int(value.dense_shape[0])
    if isinstance(value, tf.compat.v1.ragged.RaggedTensorValue):
        return len(value.row_splits) - 1
    return len(value) if getattr(value, "shape", ()) else -1


def count_rows(leaf: Any) -> tf.Tensor:
    """Counts the examples of a batch in a graph.

    Args:
        leaf: A dense, sparse or ragged tensor.

    Returns:
        The size of the first dimension, an int64 scalar.
    """
    if isinstance(leaf, tf.SparseTensor):
        return leaf.dense_shape[0]
    if isinstance(leaf, tf.RaggedTensor):
        return tf.cast(leaf.nrows(), tf.int64)
    return tf.shape(leaf, tf.int64)[0]


def take_rows(leaf: Any, start: Any, stop: Any) -> Any:
    """Takes rows of a batch.

    Args:
        leaf: A dense, sparse or ragged tensor, or None.
        start: The first row, a number or an int64 scalar.
        stop: The row after the last one.

    Returns:
        A tensor of the same kind; None of None.
    """
    if leaf is None:
        return None
    if isinstance(leaf, tf.SparseTensor):
        rest = leaf.dense_shape[1:]
        begin = tf.concat([tf.reshape(tf.cast(start, tf.int64), [1]), tf.zeros_like(rest)], 0)
        extent = tf.concat([tf.reshape(tf.cast(stop - start, tf.int64), [1]), rest], 0)
        return tf.sparse.slice(leaf, begin, extent)
    return leaf[start:stop]


def join_rows(leaves: Sequence[Any]) -> Any:
    """Puts batches one after the other.

    Args:
        leaves: Dense, sparse or ragged tensors, all of one kind.

    Returns:
        A tensor of that kind.
    """
    if isinstance(leaves[0], tf.SparseTensor):
        return tf.sparse.concat(0, list(leaves), expand_nonconcat_dims=True)
    return tf.concat(list(leaves), 0)


def no_rows(spec: Any) -> Any:
    """Makes a batch of no examples.

    Args:
        spec: Of a dense, sparse or ragged tensor of known rank.

    Returns:
        A tensor of that kind; dimensions that the spec leaves open are 0.
    """
    shape = [0, *(size or 0 for size in spec.shape.as_list()[1:])]
    if isinstance(spec, tf.SparseTensorSpec):
        indices, values = tf.zeros([0, len(shape)], tf.int64), tf.zeros([0], spec.dtype)
        return tf.SparseTensor(indices, values, tf.constant(shape, tf.int64))
    if isinstance(spec, tf.RaggedTensorSpec) and spec.ragged_rank:
        splits = [tf.zeros([1], spec.row_splits_dtype)] * spec.ragged_rank
        return tf.RaggedTensor.from_nested_row_splits(tf.zeros([0, *shape[spec.ragged_rank + 1 :]], spec.dtype), splits)
    return tf.zeros(shape, spec.dtype)
