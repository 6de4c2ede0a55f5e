"""Networks for our side of the benchmarks."""

from __future__ import annotations

import tensorflow as tf


def dense(num_classes: int) -> tf.keras.Model:
    layers = tf.keras.layers
    stack = [layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dense(num_classes)]
    return tf.keras.Sequential(stack)
