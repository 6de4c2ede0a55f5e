"""Rows of batches, the examples of dense, sparse and ragged tensors; fills batches that are too short."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.util import nest

KINDS = (tf.TensorSpec, tf.SparseTensorSpec, tf.RaggedTensorSpec)


def size_of(value: Any) -> int:
    """Counts the examples of a batch.

    Args:
        value: One tensor's result of `session.run`: an array, a SparseTensorValue or a RaggedTensorValue.

    Returns:
        The size of the first dimension; -1 for a scalar.
    """
    if isinstance(value, tf.compat.v1.SparseTensorValue):
        return int(value.dense_shape[0])
    if isinstance(value, tf.compat.v1.ragged.RaggedTensorValue):
        return len(value.row_splits) - 1
    return len(value) if getattr(value, "shape", ()) else -1


def count_rows(leaf: Any) -> tf.Tensor:
    """Counts the examples of a batch in a graph."""
    if isinstance(leaf, tf.SparseTensor):
        return leaf.dense_shape[0]
    if isinstance(leaf, tf.RaggedTensor):
        return tf.cast(leaf.nrows(), tf.int64)
    return tf.shape(leaf, tf.int64)[0]


def take_rows(leaf: Any, start: Any, stop: Any) -> Any:
    """Takes rows of a batch."""
    if leaf is None:
        return None
    if isinstance(leaf, tf.SparseTensor):
        rest = leaf.dense_shape[1:]
        begin = tf.concat([tf.reshape(tf.cast(start, tf.int64), [1]), tf.zeros_like(rest)], 0)
        extent = tf.concat([tf.reshape(tf.cast(stop - start, tf.int64), [1]), rest], 0)
        return tf.sparse.slice(leaf, begin, extent)
    return leaf[start:stop]


def join_rows(leaves: Sequence[Any]) -> Any:
    """Concatenates batches."""
    if isinstance(leaves[0], tf.SparseTensor):
        return tf.sparse.concat(0, list(leaves), expand_nonconcat_dims=True)
    return tf.concat(list(leaves), 0)


def no_rows(spec: Any) -> Any:
    """Makes an empty batch."""
    shape = [0, *(size or 0 for size in spec.shape.as_list()[1:])]
    if isinstance(spec, tf.SparseTensorSpec):
        indices, values = tf.zeros([0, len(shape)], tf.int64), tf.zeros([0], spec.dtype)
        return tf.SparseTensor(indices, values, tf.constant(shape, tf.int64))
    if isinstance(spec, tf.RaggedTensorSpec) and spec.ragged_rank:
        splits = [tf.zeros([1], spec.row_splits_dtype)] * spec.ragged_rank
        return tf.RaggedTensor.from_nested_row_splits(tf.zeros([0, *shape[spec.ragged_rank + 1 :]], spec.dtype), splits)
    return tf.zeros(shape, spec.dtype)


def fill_short_batches(dataset: tf.data.Dataset, least: int) -> tf.data.Dataset:
    """Fills up batches of fewer than `least` examples with some of the previous batch; the order stays the same.

    It reads one batch ahead, and nothing twice.

    Args:
        dataset: Batches: nested structures of dense, sparse and ragged tensors, whose first dimension is the batch.

    Returns:
        The same examples in batches of at least `least`; the number of batches differs only if one was too short.
        A single batch stays short if there are fewer examples; all batches do if a tensor's rank is unknown.
    """
    structure = dataset.element_spec
    flat = nest.flatten(structure)
    specs = [spec for spec in flat if isinstance(spec, KINDS)]
    if any(spec.shape.rank is None for spec in specs):
        return dataset

    def parts(leaves: Any) -> tuple[tf.Tensor, ...]:
        # The state of a scan cannot hold ragged tensors, only their components.
        return tuple(nest.flatten(leaves, expand_composites=True))

    def whole(components: tuple[tf.Tensor, ...]) -> list[Any]:
        return nest.pack_sequence_as(specs, components, expand_composites=True)

    def take_apart(_: tf.Tensor, element: Any) -> tuple[tf.Tensor, ...]:
        return parts([leaf for leaf in nest.flatten(element) if leaf is not None])

    def step(held: tuple[tf.Tensor, ...], new: tuple[tf.Tensor, ...]) -> tuple[Any, Any]:
        leaves = whole(held), whole(new)
        held_rows, new_rows = (count_rows(side[0]) for side in leaves)
        rows = held_rows + new_rows
        short = tf.logical_or(_is_short(held_rows, least), _is_short(new_rows, least))
        # The previous batch gives rows only if it keeps enough; otherwise the two become one.
        rest = tf.where(rows >= 2 * least, rows - least, 0)
        # The empty batch at the end releases the held rows.
        give = tf.where(tf.logical_and(short, new_rows > 0), rest, held_rows)
        joined = [join_rows(pair) for pair in zip(*leaves)]
        kept, given = (
            [take_rows(leaf, *bounds) for leaf in joined] for bounds in ((give, rows), (tf.zeros_like(give), give))
        )
        return parts(kept), parts(given)

    def pack(*components: tf.Tensor) -> Any:
        rest = iter(whole(components))
        return nest.pack_sequence_as(structure, [next(rest) if isinstance(spec, KINDS) else None for spec in flat])

    empty = parts([no_rows(spec) for spec in specs])
    batches = dataset.enumerate().map(take_apart).concatenate(tf.data.Dataset.from_tensors(empty))
    scanned = batches.scan(empty, step)
    return scanned.filter(lambda *components: count_rows(whole(components)[0]) > 0).map(pack)


def _is_short(rows: tf.Tensor, least: int) -> tf.Tensor:
    return tf.logical_and(rows > 0, rows < least)
