"""Your own preprocessing_fn; it is part of the served model."""

import tensorflow as tf


def preprocessing_fn(inputs, custom_config):
    """Converts raw bytes to images in [0, 1]."""
    pixels = tf.io.decode_raw(tf.reshape(inputs["image"], [-1]), tf.uint8)
    images = tf.reshape(tf.cast(pixels, tf.float32) / 255.0, [-1, *custom_config["image_shape"]])
    return {"image": images, "label": tf.reshape(inputs["label"], [-1])}
