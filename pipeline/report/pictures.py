"""Images of the examples, as a page can hold them."""

from __future__ import annotations

import base64

import numpy as np
import tensorflow as tf

# Longest side in pixels, and from which on an image is no longer shown pixel by pixel.
_LONGEST, _SMALL = 128, 64


def to_data_uri(image: np.ndarray) -> str:
    """Returns an image as a data URI: a small one as a PNG with every pixel, a larger one as a JPEG of at most 128.

    Args:
        image: uint8 [height, width, channels]; of other than 1 or 3 channels the first three, or one, are shown.
    """
    shown = image if image.shape[2] in (1, 3) else image[..., : 3 if image.shape[2] > 3 else 1]
    longest = max(shown.shape[:2])
    if longest <= _SMALL:
        return "data:image/png;base64," + base64.b64encode(tf.io.encode_png(shown).numpy()).decode("ascii")
    if longest > _LONGEST:
        size = [max(round(side * _LONGEST / longest), 1) for side in shown.shape[:2]]
        resized = tf.image.resize(shown, size, antialias=True)
        shown = tf.cast(tf.clip_by_value(tf.round(resized), 0, 255), tf.uint8).numpy()
    encoded = tf.io.encode_jpeg(shown, quality=85).numpy()
    return "data:image/jpeg;base64," + base64.b64encode(encoded).decode("ascii")
