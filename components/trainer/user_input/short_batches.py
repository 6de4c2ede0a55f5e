"""Shares the examples of a short batch, such as the last of an evaluation, with those of the batch before it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.util import nest

from tfx_estimator.components.trainer.user_input.rows import KINDS, count_rows, join_rows, no_rows, take_rows


def fill_short_batches(dataset: tf.data.Dataset, least: int) -> tf.data.Dataset:
    """Gives every batch enough examples, in the same order: a short one takes some of the batch before it.

    It reads one batch ahead, and nothing twice.

    Args:
        dataset: Of batches: nested structures of dense, sparse and ragged tensors, whose first dimension is the batch.

    Returns:
        The same examples in batches of at least so many, whose number differs only if one was too short. The only
        batch may be short, if there are fewer examples; and so may all, if a tensor's rank is not known.
    """
    structure = dataset.element_spec
    flat = nest.flatten(structure)
    specs = [spec for spec in flat if isinstance(spec, KINDS)]
    if any(spec.shape.rank is None for spec in specs):
        return dataset

    def parts(leaves: Any) -> tuple[tf.Tensor, ...]:
        # A scan holds no ragged tensors, but what they are made of.
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
        # What is left after a short batch has taken its own is itself not short.
        rest = tf.where(rows >= 2 * least, rows - least, 0)
        # At the end no rows come, and those held go.
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
