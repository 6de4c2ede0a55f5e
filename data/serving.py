"""What a served model is asked with: serialized tf.Examples, or images as they are."""

from __future__ import annotations

import tensorflow as tf

# Names of the serving inputs, and of their signatures.
EXAMPLES = "examples"
IMAGES = "images"


def encode_images(images: tf.Tensor) -> tf.Tensor:
    """The inverse of `preprocessing.decode_images`.

    Args:
        images: uint8, [batch, height, width, channels]; the last three are known.

    Returns:
        string, [batch].
    """
    size = images.shape[1:].num_elements()
    # TensorFlow has no `encode_raw`; a serialized uint8 tensor ends with its raw bytes.
    serialized = tf.map_fn(tf.io.serialize_tensor, images, fn_output_signature=tf.string)
    return tf.strings.substr(serialized, -size, size)
