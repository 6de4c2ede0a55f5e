"""Resizing of uint8 images, the same for every source."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf


def resize_uint8(images: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    """Resizes with antialiased bilinear filtering, and rounds back to uint8.

    Args:
        images: (H, W, C) or (batch, H, W, C) uint8.

    Returns:
        uint8, of that size.
    """
    import tensorflow as tf

    resized = tf.image.resize(images, size, method="bilinear", antialias=True)
    return tf.cast(tf.clip_by_value(tf.round(resized), 0, 255), tf.uint8)
