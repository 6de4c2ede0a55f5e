"""Imported by the network: a change here reruns the Trainer and the components after it."""

import tensorflow as tf


def hidden(units):
    """One hidden layer."""
    return tf.keras.layers.Dense(units, activation="relu")
