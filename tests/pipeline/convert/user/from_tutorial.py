"""The model_fn of TensorFlow's tutorial, which is that of examples/multi-worker-tutorial; and its layers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tutorial

# At the tutorial's own, as few steps as a test's learn nothing.
tutorial.LEARNING_RATE = 0.05


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    """The tutorial's takes the image alone."""
    return tutorial.model_fn(features["image"], labels, mode)


def network(num_classes: int) -> tf.keras.Model:
    """The same layers."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Conv2D(32, 3, activation="relu", input_shape=(28, 28, 1)),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(num_classes),
        ]
    )
