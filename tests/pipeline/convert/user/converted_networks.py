"""Small user networks: trained ones, and others that do not match them."""

from __future__ import annotations

import tensorflow as tf


def small(num_classes: int) -> tf.keras.Model:
    """A convolution with normalisation, and two dense layers of one size."""
    return _network(num_classes)


def without_bias(num_classes: int) -> tf.keras.Model:
    """Without the bias before the normalisation, whose gradient is only rounding errors."""
    return _network(num_classes, biased=False)


def with_a_layer_more(num_classes: int) -> tf.keras.Model:
    """Another network."""
    return _network(num_classes, tf.keras.layers.Dense(16, name="more"))


def normalised_twice(num_classes: int) -> tf.keras.Model:
    """A bias before a normalisation, and behind them a layer that Keras 3 computes by other operations."""
    return _network(num_classes, tf.keras.layers.LayerNormalization(name="more"))


def with_dropout(num_classes: int) -> tf.keras.Model:
    """With a random layer."""
    return _network(num_classes, tf.keras.layers.Dropout(0.5, name="dropped"))


def of_another_size(num_classes: int) -> tf.keras.Model:
    """The same layers, one of them larger."""
    return _network(num_classes, units=24)


def renamed(num_classes: int) -> tf.keras.Model:
    """The same network with other layer names."""
    return _network(num_classes, names=("filters", "average", "one", "two", "scores"))


class Buckets(tf.keras.layers.Layer):
    """Quantises numbers to four levels, int32."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Rounds and clips."""
        return tf.cast(tf.clip_by_value(tf.round(inputs + 1.0), 0.0, 3.0), tf.int32)


class OfKeras2(tf.keras.layers.Layer):
    """Creates its weight in a way that Keras 3 does not support."""

    def build(self, shape: tf.TensorShape) -> None:
        """Creates the weight."""
        self.factor = self.add_weight("factor", [1], initializer="ones")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Multiplies by it."""
        return inputs * self.factor


def with_embedding(num_classes: int) -> tf.keras.Model:
    """An embedding of four rows, repeated in each image; a layer that adds losses; default layer names."""
    layers = [
        tf.keras.Input((28, 28, 1)),
        tf.keras.layers.Flatten(),
        Buckets(),
        tf.keras.layers.Embedding(4, 3),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(num_classes, kernel_regularizer="l2", activity_regularizer="l2"),
    ]
    return tf.keras.Sequential(layers)


def of_named_inputs(num_classes: int) -> tf.keras.Model:
    """Two named inputs, and two layers of equal shape with default names."""
    inputs = [tf.keras.Input((2,), name="wide"), tf.keras.Input((3,), name="deep")]
    return tf.keras.Model(inputs, _scores(inputs, num_classes))


def of_keyed_inputs(num_classes: int) -> tf.keras.Model:
    """The same with a dict of inputs."""
    inputs = {"wide": tf.keras.Input((2,)), "deep": tf.keras.Input((3,))}
    return tf.keras.Model(inputs, _scores([inputs["wide"], inputs["deep"]], num_classes))


def _scores(inputs: list[tf.Tensor], num_classes: int) -> tf.Tensor:
    joined = tf.keras.layers.Concatenate()(inputs)
    return tf.keras.layers.Dense(num_classes)(tf.keras.layers.Dense(5)(tf.keras.layers.Dense(5)(joined)))


class OfClass(tf.keras.Model):
    """A subclassed model, which gets all features."""

    def __init__(self, num_classes: int, **named: str) -> None:
        super().__init__(**named)
        self.num_classes = num_classes
        self.joined = tf.keras.layers.Concatenate()
        self.scores = tf.keras.layers.Dense(num_classes, name="scores")

    def call(self, features: dict[str, tf.Tensor]) -> tf.Tensor:
        """Takes both by name."""
        return self.scores(self.joined([features["image"], features["wide"]]))

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        return {"num_classes": self.num_classes}


def of_keras_2(num_classes: int) -> tf.keras.Model:
    """Has a layer that only Keras 2 can build."""
    return _network(num_classes, OfKeras2(name="more"))


def _network(
    num_classes: int,
    *more: tf.keras.layers.Layer,
    units: int = 16,
    biased: bool = True,
    names: tuple[str, ...] = ("conv", "norm", "first", "second", "logits"),
) -> tf.keras.Model:
    conv, norm, first, second, logits = names
    layers = [
        tf.keras.Input((28, 28, 1)),
        tf.keras.layers.Conv2D(4, 3, strides=3, use_bias=biased, name=conv),
        tf.keras.layers.BatchNormalization(name=norm, momentum=0.8),
        tf.keras.layers.ReLU(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(units, activation="relu", name=first),
        tf.keras.layers.Dense(units, activation="relu", name=second),
        *more,
        tf.keras.layers.Dense(num_classes, name=logits),
    ]
    return tf.keras.Sequential(layers, name="small")
