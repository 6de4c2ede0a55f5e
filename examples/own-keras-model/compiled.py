"""Your own compiled Keras model, trained by its optimizer, loss and metrics."""

import tensorflow as tf


def compiled(num_classes):
    """Returns a model of two inputs, named like the features that the preprocessing_fn returns."""
    layers = tf.keras.layers
    image = tf.keras.Input([28, 28, 1], name="image")
    ink = tf.keras.Input([1], name="ink")
    hidden = layers.concatenate([layers.Flatten()(image), ink])
    hidden = layers.Dense(32, activation="relu")(hidden)
    model = tf.keras.Model([image, ink], layers.Dense(num_classes)(hidden))
    model.compile(
        optimizer=tf.keras.optimizers.Adam(0.003),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy", tf.keras.metrics.SparseTopKCategoricalAccuracy(k=2, name="top2")],
    )
    return model
