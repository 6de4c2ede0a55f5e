"""Brightness, contrast and saturation."""

from __future__ import annotations

import tensorflow as tf

from tfx_estimator.data.augmentation.draws import Draws
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.augment import RandomBrightness, RandomContrast, RandomSaturation

# Of red, green and blue in grey: ITU-R BT.601, as tf.image.rgb_to_grayscale has it.
_GREY = (0.2989, 0.5870, 0.1140)


def brighten(images: tf.Tensor, options: RandomBrightness, draws: Draws) -> tf.Tensor:
    """Adds a number of its own to each image.

    Args:
        images: float, [batch, height, width, channels].

    Returns:
        As `images`.
    """
    return images + _spread(draws.uniform(-options.factor, options.factor), images)


def contrast(images: tf.Tensor, options: RandomContrast, draws: Draws) -> tf.Tensor:
    """Multiplies the distance of each channel from its mean over the image by a factor of the image's own.

    Args:
        images: float, [batch, height, width, channels].
        options: How far from 1 the factor is at most.

    Returns:
        As `images`.
    """
    factor = _spread(draws.uniform(1 - options.factor, 1 + options.factor), images)
    # Over rows first, and added row by row: the same in half the time.
    mean = tf.reduce_mean(tf.reduce_mean(images, axis=1, keepdims=True), axis=2, keepdims=True)
    return images * factor + tf.tile(mean * (1 - factor), [1, 1, images.shape[2], 1])


def saturate(images: tf.Tensor, options: RandomSaturation, draws: Draws) -> tf.Tensor:
    """Multiplies the distance of red, green and blue from the pixel's grey by a factor of the image's own.

    Args:
        images: float, [batch, height, width, 3].
        options: How far from 1 the factor is at most.

    Returns:
        As `images`.

    Raises:
        DeclarationError: The images have no three channels.
    """
    height, width, channels = images.shape[1:]
    if channels != len(_GREY):
        raise DeclarationError(
            f"trainer.augment: random_saturation, and the images have {channels} channel{'s' if channels > 1 else ''}",
            expected="3 channels: red, green, blue",
            todo="remove random_saturation",
        )
    factor = _spread(draws.uniform(1 - options.factor, 1 + options.factor), images)[:, 0]
    # Number by number: a matrix product rounds a batch of one image otherwise than one of several.
    red, green, blue = (part * weight for part, weight in zip(tf.unstack(images, axis=-1), _GREY))
    grey = (red + green + blue) * (1 - factor)
    flat = tf.reshape(images, [-1, height, width * channels])
    return tf.reshape(flat * factor + tf.repeat(grey, channels, axis=2), tf.shape(images))


def _spread(numbers: tf.Tensor, images: tf.Tensor) -> tf.Tensor:
    """[batch, 1, 1, 1], of the images' type."""
    return tf.cast(numbers, images.dtype)[:, tf.newaxis, tf.newaxis, tf.newaxis]
