"""Networks that load weights from elsewhere, as users write them."""

from __future__ import annotations

import os

import numpy as np
import tensorflow as tf

layers = tf.keras.layers
# The loaded weights of the base: kernel and bias; gamma, beta and the averages.
SHAPES = {"feat/kernel": (784, 16), "feat/bias": (16,)}
SHAPES.update({f"norm/{name}": (16,) for name in ("gamma", "beta", "moving_mean", "moving_variance")})


def weights():
    """Returns the base's weights by the ends of their names."""
    random = np.random.RandomState(1)
    return {name: random.uniform(0.01, 0.1, shape).astype(np.float32) for name, shape in SHAPES.items()}


def base(normalised=True):
    image = tf.keras.Input([28, 28, 1])
    hidden = layers.Dense(16, activation="relu", name="feat")(layers.Flatten()(image))
    return tf.keras.Model(image, layers.BatchNormalization(name="norm")(hidden) if normalised else hidden, name="base")


def write(folder):
    """Writes the base with its weights, in the forms that the functions below read."""
    model = base()
    model.set_weights(list(weights().values()))
    model.save_weights(os.path.join(folder, "base.weights.h5"))
    model.save_weights(os.path.join(folder, "checkpoint"))
    model.save(os.path.join(folder, "base.keras"))


def network(num_classes, way="set", folder="", frozen=True, normalised=True):
    """Loads the base's weights in one of these ways."""
    read = tf.keras.models.load_model
    model = read(os.path.join(folder, "base.keras"), compile=False) if way == "model" else base(normalised)
    if way == "set":
        model.set_weights(list(weights().values())[: len(model.weights)])
    elif way == "assign":
        for variable, value in zip(model.weights, weights().values()):
            variable.assign(value)
    elif way == "file":
        model.load_weights(os.path.join(folder, "base.weights.h5"))
    elif way == "checkpoint":
        model.load_weights(os.path.join(folder, "checkpoint"))
    model.trainable = not frozen
    return tf.keras.Sequential([model, layers.Dense(num_classes, kernel_initializer="ones", name="logits")])
