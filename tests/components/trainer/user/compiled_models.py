"""Compiled models, as users write them."""

from __future__ import annotations

import tensorflow as tf

layers = tf.keras.layers
OPTIMIZERS = {"new": tf.keras.optimizers.SGD, "legacy": tf.keras.optimizers.legacy.SGD}


def _compile(model, optimizer="new", from_logits=True, learning_rate=0.05):
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits)
    top2 = tf.keras.metrics.SparseTopKCategoricalAccuracy(k=2, name="top2")
    model.compile(OPTIMIZERS[optimizer](learning_rate, momentum=0.9), loss, metrics=["accuracy", top2])
    return model


def functional(num_classes, optimizer="new"):
    """A functional model whose input has its own name."""
    inputs = tf.keras.Input([28, 28, 1], name="pixels")
    hidden = layers.Dense(16, activation="relu", kernel_regularizer="l2")(layers.Flatten()(inputs))
    return _compile(tf.keras.Model(inputs, layers.Dense(num_classes)(hidden)), optimizer)


def softmax():
    """A Sequential without arguments and input_shape, which returns probabilities."""
    model = tf.keras.Sequential([layers.Flatten(), layers.BatchNormalization(), layers.Dense(10, activation="softmax")])
    return _compile(model, from_logits=False)


def two_inputs(num_classes, compiled=True, second="mean", named=True):
    """A model of two features in a dict, whose inputs have these names or default ones."""
    image = tf.keras.Input([28, 28, 1], name="image" if named else None)
    other = tf.keras.Input([1], name=second if named else None)
    hidden = layers.concatenate([layers.Flatten()(image), other])
    model = tf.keras.Model({"image": image, second: other}, layers.Dense(num_classes)(hidden))
    return _compile(model) if compiled else model


def two_outputs(num_classes):
    """A model with one loss, whose layers are named differently from its outputs."""
    inputs = tf.keras.Input([28, 28, 1])
    flat = layers.Flatten()(inputs)
    return _compile(tf.keras.Model(inputs, {"digit": layers.Dense(num_classes)(flat), "again": layers.Dense(12)(flat)}))


class Pair(tf.keras.Model):
    def __init__(self, units):
        super().__init__()
        self.flatten, self.first, self.second = layers.Flatten(), layers.Dense(units), layers.Dense(units + 2)

    def call(self, images):
        flat = self.flatten(images)
        return self.first(flat), self.second(flat)


def pair(num_classes):
    """A model with one loss for both outputs."""
    return _compile(Pair(num_classes))


class OwnStep(tf.keras.Model):
    """Doubles its gradients."""

    def train_step(self, data):
        images, labels = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(images, labels, self(images, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients([(2 * each, var) for each, var in zip(gradients, self.trainable_variables)])
        return {"loss": loss}


def own_step(num_classes):
    """Reaches the weights of `functional` at half of its learning rate."""
    model = functional(num_classes)
    return _compile(OwnStep(model.inputs, model.outputs[0]), learning_rate=0.025)
