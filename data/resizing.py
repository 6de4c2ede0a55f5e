"""Resizes images, with the same function in ingestion and in a served model.

It is TensorFlow's, which also runs in a graph, so that served images are resized like the training images.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow as tf


@functools.lru_cache(maxsize=8)
def resizer(size: tuple[int, int], channels: int) -> Any:
    """Returns a traced `resize_uint8`, which takes half the time of eager operations for a small image."""
    import tensorflow as tf

    spec = tf.TensorSpec([None, None, channels], tf.uint8)
    return tf.function(functools.partial(resize_uint8, size=size), input_signature=[spec])


def resize_uint8(images: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    """Resizes (H, W, C) or (batch, H, W, C), uint8, with antialiased bilinear filtering, and rounds back to uint8."""
    import tensorflow as tf

    resized = tf.image.resize(images, size, method="bilinear", antialias=True)
    return tf.cast(tf.clip_by_value(tf.round(resized), 0, 255), tf.uint8)
