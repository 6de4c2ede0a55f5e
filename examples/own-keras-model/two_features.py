"""A preprocessing_fn that returns two features, one for each input of the model."""

import tensorflow as tf


def preprocessing_fn(inputs, custom_config):
    """Converts raw bytes to images in [0, 1], and adds the share of ink on each."""
    pixels = tf.io.decode_raw(tf.reshape(inputs["image"], [-1]), tf.uint8)
    images = tf.reshape(tf.cast(pixels, tf.float32) / 255.0, [-1, *custom_config["image_shape"]])
    ink = tf.reshape(tf.reduce_mean(images, axis=[1, 2, 3]), [-1, 1])
    return {"image": images, "ink": ink, "label": tf.reshape(inputs["label"], [-1])}
