"""Flips, crops and translations: each takes whole pixels from elsewhere, so that several in a row are one gather."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Union

import tensorflow as tf

from tfx_estimator.data.augmentation.draws import Draws
from tfx_estimator.pipeline.config.augment import RandomCrop, RandomFlip, RandomTranslation

Move = Union[RandomFlip, RandomCrop, RandomTranslation]
# The pixels of an axis, int64 [batch, size], of which each is taken from the original: in another order.
_AxisMove = Callable[[tf.Tensor], tf.Tensor]
MOVES = (RandomFlip, RandomCrop, RandomTranslation)

# Takes the place of a row or column that comes from outside: added to any other, the sum stays below 0.
_OUTSIDE = -(1 << 60)


def move(images: tf.Tensor, moves: Sequence[Move], draws: Draws) -> tf.Tensor:
    """Applies moves, one after another.

    Args:
        images: [batch, height, width, channels]; all but the first dimension are known.

    Returns:
        As `images`.
    """
    height, width, channels = images.shape[1:]
    batch = tf.shape(images, out_type=tf.int64)[0]
    rows, columns = (tf.tile(tf.range(size, dtype=tf.int64)[tf.newaxis], [batch, 1]) for size in (height, width))
    for each in moves:
        rows = _row_move(each, height, draws)(rows)
        columns = _column_move(each, width, draws)(columns)
    first = tf.range(batch)[:, tf.newaxis] * height
    index = tf.where(rows < 0, rows, (first + rows) * width)[:, :, tf.newaxis] + columns[:, tf.newaxis, :]
    pixels = tf.reshape(images, [-1, channels])
    if any(getattr(each, "fill", "") == "zero" for each in moves):
        # A pixel of zeros, at the place before the first.
        pixels, index = tf.concat([tf.zeros_like(pixels[:1]), pixels], axis=0), tf.maximum(index, -1) + 1
    return tf.ensure_shape(tf.gather(pixels, index), images.shape)


def _row_move(each: Move, size: int, draws: Draws) -> _AxisMove:
    if isinstance(each, RandomFlip):
        return _mirrored(draws) if each.mode in ("vertical", "both") else _kept
    most = each.padding if isinstance(each, RandomCrop) else round(each.height_factor * size)
    return _shifted(size, most, each.fill, draws)


def _column_move(each: Move, size: int, draws: Draws) -> _AxisMove:
    if isinstance(each, RandomFlip):
        return _mirrored(draws) if each.mode in ("horizontal", "both") else _kept
    most = each.padding if isinstance(each, RandomCrop) else round(each.width_factor * size)
    return _shifted(size, most, each.fill, draws)


def _kept(taken: tf.Tensor) -> tf.Tensor:
    return taken


def _mirrored(draws: Draws) -> _AxisMove:
    flags = draws.flags()[:, tf.newaxis]
    return lambda taken: tf.where(flags, taken[:, ::-1], taken)


def _shifted(size: int, most: int, fill: str, draws: Draws) -> _AxisMove:
    """By `-most` to `most` pixels, equally likely."""
    # A mirror image shows no more than the image holds.
    most = min(most, size - 1) if fill == "reflect" else most
    shift = tf.cast(draws.integers(2 * most + 1), tf.int64)[:, tf.newaxis] - most

    def take(taken: tf.Tensor) -> tf.Tensor:
        last = size - 1
        wanted = tf.range(size, dtype=tf.int64) + shift
        if fill == "reflect":
            # The edge itself comes once.
            return tf.gather(taken, last - tf.abs(last - tf.abs(wanted)), batch_dims=1)
        inside = tf.gather(taken, tf.clip_by_value(wanted, 0, last), batch_dims=1)
        return tf.where((wanted < 0) | (wanted > last), tf.constant(_OUTSIDE, tf.int64), inside)

    return take
