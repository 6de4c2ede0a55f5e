"""The default preprocessing_fn of Transform, and conversions between images and raw bytes."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from tfx_estimator.data.features import IMAGE, LABEL

# A channel that is constant over the whole data set must not divide by zero.
_MIN_VARIANCE = 1e-6


def decode_images(image_bytes: tf.Tensor, image_shape: tuple[int, int, int]) -> tf.Tensor:
    """Converts raw bytes, string [batch] or [batch, 1], to images, uint8 [batch, height, width, channels]."""
    flat = tf.reshape(image_bytes, [-1])
    decoded = tf.io.decode_raw(flat, tf.uint8)
    # Not -1: the bytes of two images must be an error, not a further image of the batch.
    return tf.reshape(decoded, [tf.shape(decoded)[0], *image_shape])


def encode_images(images: tf.Tensor) -> tf.Tensor:
    """Converts images, uint8 [batch, height, width, channels], to raw bytes, string [batch]."""
    size = images.shape[1:].num_elements()
    # TensorFlow has no `encode_raw`; a serialized uint8 tensor ends with its raw bytes.
    serialized = tf.map_fn(tf.io.serialize_tensor, images, fn_output_signature=tf.string)
    return tf.strings.substr(serialized, -size, size)


def preprocessing_fn(inputs: dict[str, tf.Tensor], custom_config: dict[str, Any]) -> dict[str, tf.Tensor]:
    """Scales images to [0, 1], then standardises each channel with moments over the whole training split.

    See https://www.tensorflow.org/tfx/transform/get_started.

    Args:
        inputs: `image`: string, [batch] or [batch, 1], raw uint8 bytes; `label`: int64, [batch] or [batch, 1].
        custom_config: `image_shape`: [height, width, channels].

    Returns:
        `image`: float32, [batch, height, width, channels]; `label`: int64, [batch].
    """
    height, width, channels = custom_config["image_shape"]
    images = tf.cast(decode_images(inputs[IMAGE], (height, width, channels)), tf.float32)
    scaled = images / 255.0
    # Per-image moments first: the analyzers then reduce a few numbers per image, not its pixels.
    mean = tft.mean(tf.reduce_mean(scaled, axis=[1, 2]), reduce_instance_dims=False)
    second_moment = tft.mean(tf.reduce_mean(tf.square(scaled), axis=[1, 2]), reduce_instance_dims=False)
    factor = tf.math.rsqrt(tf.maximum(second_moment - tf.square(mean), _MIN_VARIANCE))
    # (scaled - mean) * factor, in two passes over the pixels instead of three; row by row, since a broadcast over the
    # channels works an element at a time, which costs CIFAR-10 four times as much.
    rows = tf.reshape(images, [-1, height, width * channels])
    standardised = rows * tf.tile(factor / 255.0, [width]) - tf.tile(mean * factor, [width])
    return {IMAGE: tf.reshape(standardised, [-1, height, width, channels]), LABEL: tf.reshape(inputs[LABEL], [-1])}
