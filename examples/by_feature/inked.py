"""Standardised images, and the share of ink on each: a feature to slice the evaluation by."""

import tensorflow as tf

from tfx_estimator.data import preprocessing


def preprocessing_fn(inputs, custom_config):
    pixels = tf.cast(preprocessing.decode_images(inputs["image"], custom_config["image_shape"]), tf.float32)
    much = tf.reduce_mean(pixels, axis=[1, 2, 3]) > 60
    return {**preprocessing.preprocessing_fn(inputs, custom_config), "ink": tf.where(much, "much", "little")}
