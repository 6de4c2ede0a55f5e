"""Training as in TensorFlow's tutorial "Multi-worker training with Estimator", on one worker.

Source: https://github.com/tensorflow/docs, site/en/tutorials/distribute/multi_worker_with_estimator.ipynb. Data set,
order of the input's stages, network, loss and optimizer are the tutorial's; only the data folder is a parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional

import tensorflow as tf
import tensorflow_datasets as tfds

BUFFER_SIZE = 10_000
BATCH_SIZE = 64
LEARNING_RATE = 1e-4


def make_input_fn(data_dir: Optional[str]) -> Callable[..., tf.data.Dataset]:
    def scale(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.cast(image, tf.float32) / 255, label

    def input_fn(mode: str, input_context: Optional[tf.distribute.InputContext] = None) -> tf.data.Dataset:
        splits, _ = tfds.load("mnist", data_dir=data_dir, with_info=True, as_supervised=True)
        examples = splits["train"] if mode == tf.estimator.ModeKeys.TRAIN else splits["test"]
        if input_context:
            examples = examples.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
        return examples.map(scale).cache().shuffle(BUFFER_SIZE).batch(BATCH_SIZE)

    return input_fn


def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str) -> tf.estimator.EstimatorSpec:
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Conv2D(32, 3, activation="relu", input_shape=(28, 28, 1)),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )
    logits = model(features, training=False)
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(learning_rate=LEARNING_RATE)
    cross_entropy = tf.keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction=tf.keras.losses.Reduction.NONE
    )
    loss = tf.reduce_sum(cross_entropy(labels, logits)) * (1.0 / BATCH_SIZE)
    step = tf.compat.v1.train.get_or_create_global_step()
    return tf.estimator.EstimatorSpec(mode=mode, loss=loss, train_op=optimizer.minimize(loss, step))


def make_estimator(model_dir: str) -> tf.estimator.Estimator:
    """Builds the tutorial's Estimator, without a strategy."""
    return tf.estimator.Estimator(model_fn=model_fn, model_dir=model_dir, config=tf.estimator.RunConfig())
