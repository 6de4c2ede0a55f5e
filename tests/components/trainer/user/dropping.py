"""A network with random layers."""

from __future__ import annotations

import tensorflow as tf

layers = tf.keras.layers


def network(num_classes: int) -> tf.keras.Model:
    hidden = [layers.Dense(1000, "relu"), layers.Dropout(0.5), layers.Dense(1000, "relu"), layers.Dropout(0.5)]
    return tf.keras.Sequential([layers.Flatten(), *hidden, layers.Dense(num_classes)])
