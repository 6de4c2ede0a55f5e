"""Small networks of a user's, as they are trained and as they were not."""

from __future__ import annotations

import tensorflow as tf


def small(num_classes: int) -> tf.keras.Model:
    """A convolution with normalisation, and two dense layers of one size."""
    return _network(num_classes)


def with_a_layer_more(num_classes: int) -> tf.keras.Model:
    """Another network."""
    return _network(num_classes, tf.keras.layers.Dense(16, name="more"))


def with_dropout(num_classes: int) -> tf.keras.Model:
    """A layer of it draws by chance."""
    return _network(num_classes, tf.keras.layers.Dropout(0.5, name="dropped"))


def of_another_size(num_classes: int) -> tf.keras.Model:
    """The same layers, of which one is larger."""
    return _network(num_classes, units=24)


def renamed(num_classes: int) -> tf.keras.Model:
    """The same network, its layers called otherwise."""
    return _network(num_classes, names=("filters", "average", "one", "two", "scores"))


def _network(
    num_classes: int,
    *more: tf.keras.layers.Layer,
    units: int = 16,
    names: tuple[str, ...] = ("conv", "norm", "first", "second", "logits"),
) -> tf.keras.Model:
    conv, norm, first, second, logits = names
    layers = [
        tf.keras.Input((28, 28, 1)),
        tf.keras.layers.Conv2D(4, 3, strides=3, name=conv),
        tf.keras.layers.BatchNormalization(name=norm, momentum=0.8),
        tf.keras.layers.ReLU(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(units, activation="relu", name=first),
        tf.keras.layers.Dense(units, activation="relu", name=second),
        *more,
        tf.keras.layers.Dense(num_classes, name=logits),
    ]
    return tf.keras.Sequential(layers, name="small")
