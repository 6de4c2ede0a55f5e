"""Small networks: one whose gradients overflow, one with random layers, one that records what its layers draw."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import tensorflow as tf

layers = tf.keras.layers


def steep(num_classes: int) -> tf.keras.Model:
    """Has inputs of a thousand: float16 gradients overflow until the loss scale is small."""
    image = tf.keras.Input((28, 28, 1))
    return tf.keras.Model(image, layers.Dense(num_classes)(layers.Flatten()(image) * 1000.0))


def dropping(num_classes: int) -> tf.keras.Model:
    hidden = [layers.Dense(1000, "relu"), layers.Dropout(0.5), layers.Dense(1000, "relu"), layers.Dropout(0.5)]
    return tf.keras.Sequential([layers.Flatten(), *hidden, layers.Dense(num_classes)])


class Drawing(layers.Layer):
    """Returns its inputs, and appends one line per step with a digest for each random layer."""

    def __init__(self, file: str) -> None:
        super().__init__(name="drawing")
        self._file = Path(file)
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


def drawing(num_classes: int, file: str) -> tf.keras.Model:
    return tf.keras.Sequential([Drawing(file), layers.Flatten(), layers.Dense(num_classes)])
