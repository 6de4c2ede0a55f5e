"""What hides a part of an image: cutout and noise."""

from __future__ import annotations

import tensorflow as tf

from tfx_estimator.data.augmentation.draws import Draws
from tfx_estimator.pipeline.config.augment import Cutout, GaussianNoise


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
