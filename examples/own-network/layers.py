"""What the network imports: a change here reruns the Trainer and what follows it."""

import tensorflow as tf


def hidden(units):
    """One hidden layer."""
    return tf.keras.layers.Dense(units, activation="relu")
