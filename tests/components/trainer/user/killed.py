"""Models whose process is killed once at a step, and models that unlearn or recover."""

from __future__ import annotations

import os
import signal

import tensorflow as tf

layers, v1 = tf.keras.layers, tf.compat.v1


def kill_once(marker: str) -> None:
    """Kills this process, but only once."""
    if not os.path.exists(marker):
        open(marker, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)


class KillHook(v1.train.SessionRunHook):
    """Kills the process at a step of an Estimator."""

    def __init__(self, at: int, marker: str) -> None:
        self._at, self._marker = at, marker

    def after_run(self, context, values) -> None:
        if context.session.run(v1.train.get_global_step()) == self._at:
            kill_once(self._marker)


def model_fn(features, labels, mode, params):
    """Unlearns from a step on, faster than it learned."""
    images = tf.reshape(features["image"], [-1, 784])
    logits = v1.layers.dense(images, params["num_classes"], name="linear")
    outputs = {"probabilities": tf.nn.softmax(logits)}
    if mode == tf.estimator.ModeKeys.PREDICT:
        export = {"serving_default": tf.estimator.export.PredictOutput(outputs)}
        return tf.estimator.EstimatorSpec(mode, predictions=outputs, export_outputs=export)
    loss, step = v1.losses.sparse_softmax_cross_entropy(labels, logits), v1.train.get_global_step()
    rate = tf.where(step < params["ruin_at"], 0.01, -0.2)
    train_op = v1.train.GradientDescentOptimizer(rate).minimize(loss, step)
    accuracy = v1.metrics.accuracy(labels, tf.argmax(logits, -1))
    hooks = [KillHook(params["kill_at"], params["marker"])] if params["kill_at"] else []
    return tf.estimator.EstimatorSpec(
        mode, loss=loss, train_op=train_op, eval_metric_ops={"accuracy": accuracy}, training_hooks=hooks
    )


class Kill(layers.Layer):
    """Kills the process at a call during training."""

    def __init__(self, at: int, marker: str) -> None:
        super().__init__(name="kill")
        self._at, self._marker, self._calls = at, marker, 0

    def call(self, inputs, training=None):
        """Returns its inputs."""
        if training and self._at:
            with tf.control_dependencies([tf.py_function(self._count, [], [])]):
                return tf.identity(inputs)
        return inputs

    def _count(self) -> None:
        self._calls += 1
        if self._calls == self._at:
            kill_once(self._marker)


def network(num_classes, kill_at, marker):
    return tf.keras.Sequential([layers.Flatten(), Kill(kill_at, marker), layers.Dense(num_classes)])


def deep(num_classes, kill_at, marker):
    """A network of named layers, for model parallelism."""
    stack = [layers.Conv2D(8, 3, strides=2, name="conv"), layers.ReLU(name="relu"), Kill(kill_at, marker)]
    return tf.keras.Sequential([*stack, layers.Flatten(name="flatten"), layers.Dense(num_classes, name="logits")])


class Recovers(layers.Layer):
    """Returns NaN until it has seen 30 steps."""

    def build(self, shape):
        first = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.seen = self.add_weight("seen", shape=(), trainable=False, aggregation=first)

    def call(self, inputs, training=None):
        """Returns its inputs during training."""
        if training:
            self.seen.assign_add(1.0)
            return inputs
        return tf.where(self.seen < 30.0, float("nan"), inputs)


def recovering(num_classes):
    return tf.keras.Sequential([layers.Flatten(), layers.Dense(num_classes), Recovers()])
