"""The layers of cnn.py with Keras: what `tfx-estimator convert` goes on with."""

import tensorflow as tf


def network(num_classes, dropout):
    """The network alone: its loss and optimizer are the declaration's."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(2, 2),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(2, 2),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dropout(dropout),
            layers.Dense(num_classes),
        ]
    )
