"""Rotation and zoom, by bilinear interpolation; and what hides a part of an image: cutout and noise."""

from __future__ import annotations

import math

import tensorflow as tf

from tfx_estimator.data.augmentation.draws import Draws
from tfx_estimator.pipeline.config.augment import Cutout, GaussianNoise, RandomRotation, RandomZoom

# What TensorFlow calls them.
_FILL_MODES = {"zero": "CONSTANT", "reflect": "REFLECT"}


def rotate(images: tf.Tensor, options: RandomRotation, draws: Draws) -> tf.Tensor:
    """Turns each image about its centre by an angle of its own, either way.

    Args:
        images: float, [batch, height, width, channels].

    Returns:
        As `images`.
    """
    angle = _exact(draws.uniform(-math.radians(options.degrees), math.radians(options.degrees)))
    return _warp(images, tf.cos(angle), tf.sin(angle), options.fill)


def zoom(images: tf.Tensor, options: RandomZoom, draws: Draws) -> tf.Tensor:
    """Enlarges or shrinks each image about its centre by a factor of its own.

    Args:
        images: float, [batch, height, width, channels].
        options: How far from 1 the factor is at most.

    Returns:
        As `images`.
    """
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
    """What follows is rounded once, and not according to an example's place in the batch."""
    return tf.cast(numbers, tf.float64)


def cut_out(images: tf.Tensor, options: Cutout, draws: Draws) -> tf.Tensor:
    """Sets a square of each image to zero.

    Source: DeVries and Taylor, Improved regularization of convolutional neural networks with cutout, 2017.

    Args:
        images: float, [batch, height, width, channels].
        options: The square's size; its centre is any pixel.

    Returns:
        As `images`.
    """
    height, width, channels = images.shape[1:]
    rows, columns = (_within(size, options.size, draws) for size in (height, width))
    # Channels beside each other, as columns: a wider last dimension is much faster.
    hidden = rows[:, :, tf.newaxis] & tf.repeat(columns, channels, axis=1)[:, tf.newaxis, :]
    flat = tf.reshape(images, [-1, height, width * channels])
    return tf.reshape(tf.where(hidden, tf.zeros_like(flat), flat), [-1, height, width, channels])


def add_noise(images: tf.Tensor, options: GaussianNoise, draws: Draws) -> tf.Tensor:
    """Adds a normally distributed number to each element.

    Args:
        images: float, [batch, height, width, channels].

    Returns:
        As `images`.
    """
    noise = options.stddev * draws.normal(images.shape[1:].num_elements())
    return images + tf.cast(tf.reshape(noise, [-1, *images.shape[1:]]), images.dtype)


def _within(side: int, size: int, draws: Draws) -> tf.Tensor:
    """Which places of an axis are within a stretch around a centre; bool [batch, side]."""
    start = draws.integers(side)[:, tf.newaxis] - size // 2
    places = tf.range(side)
    return (places >= start) & (places < start + size)
