"""The layers of cnn.py in Keras, for `tfx-estimator convert`."""

import tensorflow as tf


def network(num_classes, dropout):
    """The network only; the declaration has the loss and the optimizer."""
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
