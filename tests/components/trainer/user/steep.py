"""A network with inputs of a thousand: float16 gradients overflow until the loss scale is small."""

from __future__ import annotations

import tensorflow as tf


def network(num_classes: int) -> tf.keras.Model:
    image = tf.keras.Input((28, 28, 1))
    return tf.keras.Model(image, tf.keras.layers.Dense(num_classes)(tf.keras.layers.Flatten()(image) * 1000.0))
