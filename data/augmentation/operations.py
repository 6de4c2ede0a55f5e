"""The operations of augmentation, on batches of images, float [batch, height, width, channels].

Flips, crops and translations move whole pixels, so consecutive ones are one gather. Rotation and zoom use bilinear
interpolation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Union

import tensorflow as tf

from tfx_estimator.data.augmentation.draws import Draws
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.augment import (
    Cutout,
    GaussianNoise,
    RandomBrightness,
    RandomContrast,
    RandomCrop,
    RandomFlip,
    RandomRotation,
    RandomSaturation,
    RandomTranslation,
    RandomZoom,
)

Move = Union[RandomFlip, RandomCrop, RandomTranslation]
# Reorders the source pixels along an axis, int64 [batch, size].
_AxisMove = Callable[[tf.Tensor], tf.Tensor]
MOVES = (RandomFlip, RandomCrop, RandomTranslation)

# The index of a row or column outside of the image: the sum with any other index is negative.
_OUTSIDE = -(1 << 60)
# TensorFlow's names.
_FILL_MODES = {"zero": "CONSTANT", "reflect": "REFLECT"}
# Weights of red, green and blue in grey: ITU-R BT.601, as in tf.image.rgb_to_grayscale.
_GREY = (0.2989, 0.5870, 0.1140)


def move(images: tf.Tensor, moves: Sequence[Move], draws: Draws) -> tf.Tensor:
    """Applies moves in order."""
    height, width, channels = images.shape[1:]
    batch = tf.shape(images, out_type=tf.int64)[0]
    rows, columns = (tf.tile(tf.range(size, dtype=tf.int64)[tf.newaxis], [batch, 1]) for size in (height, width))
    for each in moves:
        rows = _axis_move(each, "height", height, draws)(rows)
        columns = _axis_move(each, "width", width, draws)(columns)
    first = tf.range(batch)[:, tf.newaxis] * height
    index = tf.where(rows < 0, rows, (first + rows) * width)[:, :, tf.newaxis] + columns[:, tf.newaxis, :]
    pixels = tf.reshape(images, [-1, channels])
    if any(getattr(each, "fill", "") == "zero" for each in moves):
        # Prepends a pixel of zeros, for all pixels outside.
        pixels, index = tf.concat([tf.zeros_like(pixels[:1]), pixels], axis=0), tf.maximum(index, -1) + 1
    return tf.ensure_shape(tf.gather(pixels, index), images.shape)


def _axis_move(each: Move, axis: str, size: int, draws: Draws) -> _AxisMove:
    """Returns a move's reordering along an axis, `height` or `width`."""
    if isinstance(each, RandomFlip):
        flips = each.mode in ("vertical" if axis == "height" else "horizontal", "both")
        return _mirrored(draws) if flips else lambda taken: taken
    most = each.padding if isinstance(each, RandomCrop) else round(getattr(each, f"{axis}_factor") * size)
    return _shifted(size, most, each.fill, draws)


def _mirrored(draws: Draws) -> _AxisMove:
    flags = draws.flags()[:, tf.newaxis]
    return lambda taken: tf.where(flags, taken[:, ::-1], taken)


def _shifted(size: int, most: int, fill: str, draws: Draws) -> _AxisMove:
    """Shifts by `-most` to `most` pixels, uniformly."""
    # A reflection is no larger than the image.
    most = min(most, size - 1) if fill == "reflect" else most
    shift = tf.cast(draws.integers(2 * most + 1), tf.int64)[:, tf.newaxis] - most

    def take(taken: tf.Tensor) -> tf.Tensor:
        last = size - 1
        source = tf.range(size, dtype=tf.int64) + shift
        if fill == "reflect":
            # Without repeating the edge.
            return tf.gather(taken, last - tf.abs(last - tf.abs(source)), batch_dims=1)
        inside = tf.gather(taken, tf.clip_by_value(source, 0, last), batch_dims=1)
        return tf.where((source < 0) | (source > last), tf.constant(_OUTSIDE, tf.int64), inside)

    return take


def rotate(images: tf.Tensor, options: RandomRotation, draws: Draws) -> tf.Tensor:
    """Rotates each image about its centre by a random angle."""
    angle = _exact(draws.uniform(-math.radians(options.degrees), math.radians(options.degrees)))
    return _warp(images, tf.cos(angle), tf.sin(angle), options.fill)


def zoom(images: tf.Tensor, options: RandomZoom, draws: Draws) -> tf.Tensor:
    """Enlarges or shrinks each image about its centre by a random factor."""
    factor = _exact(draws.uniform(1 - options.factor, 1 + options.factor))
    return _warp(images, 1.0 / factor, tf.zeros_like(factor), options.fill)


def _warp(images: tf.Tensor, cosine: tf.Tensor, sine: tf.Tensor, fill: str) -> tf.Tensor:
    """Takes the pixel at x, y, counted from the centre, from cosine * x - sine * y, sine * x + cosine * y."""
    height, width = images.shape[1:3]
    x, y = (width - 1) / 2, (height - 1) / 2
    zeros = tf.zeros_like(sine)
    rows = (cosine, -sine, x - cosine * x + sine * y, sine, cosine, y - sine * x - cosine * y, zeros, zeros)
    warped = tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=tf.cast(tf.stack(rows, axis=1), tf.float32),
        output_shape=[height, width],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode=_FILL_MODES[fill],
    )
    return tf.ensure_shape(warped, images.shape)


def _exact(numbers: tf.Tensor) -> tf.Tensor:
    """Casts to float64, so that rounding to float32 does not depend on an example's place in the batch."""
    return tf.cast(numbers, tf.float64)


def cut_out(images: tf.Tensor, options: Cutout, draws: Draws) -> tf.Tensor:
    """Sets a square of each image to zero; its centre is a random pixel.

    Source: DeVries and Taylor, Improved regularization of convolutional neural networks with cutout, 2017.
    """
    height, width, channels = images.shape[1:]
    rows, columns = (_within(size, options.size, draws) for size in (height, width))
    # Channels as further columns: a wider last dimension is much faster.
    hidden = rows[:, :, tf.newaxis] & tf.repeat(columns, channels, axis=1)[:, tf.newaxis, :]
    flat = tf.reshape(images, [-1, height, width * channels])
    return tf.reshape(tf.where(hidden, tf.zeros_like(flat), flat), [-1, height, width, channels])


def add_noise(images: tf.Tensor, options: GaussianNoise, draws: Draws) -> tf.Tensor:
    """Adds a random normal number to each element."""
    noise = options.stddev * draws.normal(images.shape[1:].num_elements())
    return images + tf.cast(tf.reshape(noise, [-1, *images.shape[1:]]), images.dtype)


def _within(side: int, size: int, draws: Draws) -> tf.Tensor:
    """Returns the positions of an axis within a random interval; bool [batch, side]."""
    start = draws.integers(side)[:, tf.newaxis] - size // 2
    places = tf.range(side)
    return (places >= start) & (places < start + size)


def brighten(images: tf.Tensor, options: RandomBrightness, draws: Draws) -> tf.Tensor:
    """Adds a random number to each image."""
    return images + _spread(draws.uniform(-options.factor, options.factor), images)


def contrast(images: tf.Tensor, options: RandomContrast, draws: Draws) -> tf.Tensor:
    """Multiplies the distance of each channel from its mean over the image by the image's random factor."""
    factor = _spread(draws.uniform(1 - options.factor, 1 + options.factor), images)
    # Over rows first, and added row by row: half the time.
    mean = tf.reduce_mean(tf.reduce_mean(images, axis=1, keepdims=True), axis=2, keepdims=True)
    return images * factor + tf.tile(mean * (1 - factor), [1, 1, images.shape[2], 1])


def saturate(images: tf.Tensor, options: RandomSaturation, draws: Draws) -> tf.Tensor:
    """Multiplies the distance of red, green and blue from the pixel's grey by the image's random factor."""
    height, width, channels = images.shape[1:]
    if channels != len(_GREY):
        raise DeclarationError(
            f"trainer.augment: random_saturation, but the images have {channels} channel{'s' if channels > 1 else ''}",
            expected="3 channels: red, green, blue",
            todo="remove random_saturation",
        )
    factor = _spread(draws.uniform(1 - options.factor, 1 + options.factor), images)[:, 0]
    # Elementwise: a matrix product rounds a batch of one image differently from one of several.
    red, green, blue = (part * weight for part, weight in zip(tf.unstack(images, axis=-1), _GREY))
    grey = (red + green + blue) * (1 - factor)
    flat = tf.reshape(images, [-1, height, width * channels])
    return tf.reshape(flat * factor + tf.repeat(grey, channels, axis=2), tf.shape(images))


def _spread(numbers: tf.Tensor, images: tf.Tensor) -> tf.Tensor:
    """Returns numbers as [batch, 1, 1, 1], in the images' dtype."""
    return tf.cast(numbers, images.dtype)[:, tf.newaxis, tf.newaxis, tf.newaxis]
