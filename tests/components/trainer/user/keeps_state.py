"""Networks whose layers keep a state that `call` assigns."""

from __future__ import annotations

import tensorflow as tf

layers = tf.keras.layers


class Keeps(layers.Layer):
    """Counts training steps and averages its inputs; the output depends on both."""

    def build(self, shape):
        options = {"trainable": False, "aggregation": tf.VariableAggregation.MEAN}
        self.count = self.add_weight("count", [], initializer="zeros", **options)
        self.average = self.add_weight("average", [shape[-1]], initializer="zeros", **options)

    def call(self, inputs, training=False):
        """Reads its state before and after the assignment."""
        if training:
            before = tf.identity(self.count)
            self.count.assign_add(1.0)
            self.average.assign(0.9 * self.average + 0.1 * tf.reduce_mean(inputs, axis=0))
            inputs = inputs * (1 + 0.1 * before)
        return (inputs - self.average) * (1 + 0.1 * self.count)


class KeepsWhere(Keeps):
    """The same in a branch of the graph."""

    def call(self, inputs, training=False):
        """Assigns if the inputs are finite; the output uses the count alone."""
        if training:
            tf.cond(tf.reduce_all(tf.math.is_finite(inputs)), self._grow, lambda: tf.constant(0.0))
        return inputs * (1 + 0.1 * self.count)

    def _grow(self):
        self.count.assign_add(1.0)
        return tf.constant(1.0)


def network(num_classes, kind="Keeps"):
    """Not compiled."""
    image = tf.keras.Input([28, 28, 1], name="image")
    kept = globals()[kind](name="keeps")(layers.Flatten()(image))
    return tf.keras.Model(image, layers.Dense(num_classes, kernel_initializer="ones", name="logits")(kept))
