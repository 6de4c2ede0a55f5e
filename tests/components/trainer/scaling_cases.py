"""Tries pairings of a loss and an optimizer, in a process of their own; prints each one's verdict as JSON."""

from __future__ import annotations

import functools
import json
import sys
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

from components.trainer import scaling_probe
from model_fn.strategies import configure_devices, make_strategy
from pipeline.config.distribution import Distribution
from pipeline.errors import UserCodeError

BATCH = 32
train, layers, losses = tf.compat.v1.train, tf.compat.v1.layers, tf.compat.v1.losses
keras = tf.keras.optimizers.legacy

LOSSES = {
    "mean": lambda each: tf.reduce_mean(each),
    "global": lambda each: tf.reduce_sum(each) / BATCH,
    # After a loss function of TensorFlow 1 that sums, `minimize` does not divide.
    "v1-sum": lambda each: losses.compute_weighted_loss(each, reduction=losses.Reduction.SUM),
}
OPTIMIZERS = {
    "adam": lambda: train.AdamOptimizer(0.01),
    "sgd": lambda: train.GradientDescentOptimizer(0.1),
    # Its first step changes nothing.
    "warm-up": lambda: train.GradientDescentOptimizer(0.01 * tf.cast(train.get_global_step(), tf.float32)),
    "keras": lambda: keras.Adam(0.01),
}


def minimize(optimizer: Any, loss: tf.Tensor) -> tf.Operation:
    return optimizer.minimize(loss, train.get_global_step())


def apply(optimizer: Any, loss: tf.Tensor) -> tf.Operation:
    variables = tf.compat.v1.trainable_variables()
    return optimizer.apply_gradients(zip(tf.gradients(loss, variables), variables), train.get_global_step())


def clip(optimizer: Any, loss: tf.Tensor) -> tf.Operation:
    gradients, variables = zip(*optimizer.compute_gradients(loss))
    clipped, _ = tf.clip_by_global_norm(gradients, 1e-3)
    return optimizer.apply_gradients(zip(clipped, variables), train.get_global_step())


def updates(optimizer: Any, loss: tf.Tensor) -> tf.Operation:
    optimizer.iterations = train.get_global_step()
    return optimizer.get_updates(loss, tf.compat.v1.trainable_variables())[0]


STEPS = {"minimize": minimize, "apply": apply, "clip": clip, "updates": updates}


def input_fn() -> tf.data.Dataset:
    return examples(np.random.RandomState(0))


def unseeded_input_fn() -> tf.data.Dataset:
    return examples(np.random)


def examples(random: Any) -> tf.data.Dataset:
    numbers = random.rand(512, 8).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((numbers, (numbers.sum(1) > 4).astype(np.int64)))
    return dataset.shuffle(512).repeat().batch(BATCH)


def make_spec(loss: str, optimizer: str, step: str, special: str = "") -> dict[str, Any]:
    def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str) -> tf.estimator.EstimatorSpec:
        hidden = layers.dense(features, 64, activation=tf.nn.relu)
        if special == "dropout":
            hidden = layers.dropout(layers.batch_normalization(hidden, training=True), 0.5, training=True)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=layers.dense(hidden, 2))
        total = LOSSES[loss](each)
        return tf.estimator.EstimatorSpec(mode, loss=total, train_op=STEPS[step](OPTIMIZERS[optimizer](), total))

    estimator = tf.estimator.Estimator(model_fn, tempfile.mkdtemp())
    reader = unseeded_input_fn if special == "unseeded" else input_fn
    return {"estimator": estimator, "train_spec": tf.estimator.TrainSpec(reader)}


def main(strategy: str, cases: list[str]) -> None:
    """Tries the cases, for example `mean adam minimize`, under two replicas of a strategy."""
    devices = {} if strategy == "multi_worker_mirrored" else {"cpu": 2}
    distribution = Distribution.parse_obj({"train": {"strategy": strategy, "devices": devices}})
    section = scaling_probe.section(distribution)
    configure_devices(section)
    made = make_strategy(section)
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            try:
                scaling_probe.run(functools.partial(make_spec, *case.split()), distribution, made, folder)
                verdict = "; ".join(["right", *scaling_probe.read_notes(folder)])
            except UserCodeError as error:
                verdict = str(error)
        print(json.dumps([case, verdict]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
