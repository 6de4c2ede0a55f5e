"""The model_fn of TensorFlow's tutorial, from examples/multi-worker-tutorial, and a network with its layers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tutorial

# The tutorial's own rate would learn nothing in a test's few steps.
tutorial.LEARNING_RATE = 0.05


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    """Passes the image alone to the tutorial's model_fn."""
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
