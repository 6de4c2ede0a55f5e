"""A network that records the random numbers of its layers in each step of a training."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import tensorflow as tf


class Drawing(tf.keras.layers.Layer):
    """Returns its inputs, and appends one line per step with a digest for each random layer."""

    def __init__(self, file: str) -> None:
        super().__init__(name="drawing")
        self._file = Path(file)
        layers = tf.keras.layers
        # Stateful operations with and without a layer's seed, and a generator.
        self._layers = [layers.Dropout(0.5), layers.GaussianNoise(1.0, seed=3), layers.RandomBrightness(0.4)]

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        if not training:
            return inputs
        images = tf.fill([2, 8, 8, 3], 128.0)
        drawn = [layer(images, training=True) for layer in self._layers]
        with tf.control_dependencies([tf.numpy_function(self._write, drawn, tf.int64)]):
            return tf.identity(inputs)

    def _write(self, *drawn: np.ndarray) -> np.int64:
        with self._file.open("a", encoding="utf-8") as file:
            print(*(hashlib.sha256(each.tobytes()).hexdigest() for each in drawn), file=file)
        return np.int64(0)


def network(num_classes: int, file: str) -> tf.keras.Model:
    return tf.keras.Sequential([Drawing(file), tf.keras.layers.Flatten(), tf.keras.layers.Dense(num_classes)])
