import tensorflow as tf
from data.sizes import HIDDEN
from pipeline.names import LAYER


def small(num_classes):
    return tf.keras.Sequential(
        [
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(HIDDEN, activation="relu", name=LAYER),
            tf.keras.layers.Dense(num_classes),
        ]
    )
