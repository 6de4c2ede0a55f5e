"""Trains a model_fn of Keras layers and of tf.compat.v1.layers for some steps, over and over in one process.

Prints as JSON, for each strategy, a digest of all variables of the checkpoint, of each time.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.components.trainer import seeds
from tfx_estimator.components.trainer.estimator.distribute import distribute
from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator
from tfx_estimator.model_fn.parallel.strategies import configure_devices, make_strategy
from tfx_estimator.pipeline.config.distribution import TrainStrategy
from tfx_estimator.pipeline.config.trainer import TrainerSection

bring_back_estimator()
layers, train = tf.compat.v1.layers, tf.compat.v1.train
STEPS = 3


def input_fn() -> tf.data.Dataset:
    numbers = np.random.RandomState(0).rand(256, 8, 8, 1).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices((numbers, np.arange(256) % 4)).shuffle(256).repeat().batch(16)


def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str, params: Any) -> tf.estimator.EstimatorSpec:
    features = tf.keras.layers.Conv2D(4, 3)(features)
    features = tf.keras.layers.Dropout(0.2)(tf.keras.layers.Flatten()(features), training=True)
    features = layers.dropout(layers.dense(features, 16), 0.2, training=True)
    features = features @ tf.constant(np.random.randn(16, 16).astype(np.float32))
    table = tf.compat.v1.get_variable("table", [16, 4])
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=features @ table)
    loss = tf.reduce_mean(losses)
    train_op = train.MomentumOptimizer(0.1, 0.9).minimize(loss, train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def by_model_fn(folder: str) -> tf.estimator.Estimator:
    return tf.estimator.Estimator(model_fn, folder, params={"a": 1})


def by_keras(folder: str) -> tf.estimator.Estimator:
    parts = [tf.keras.layers.Conv2D(4, 3), tf.keras.layers.Flatten(), tf.keras.layers.Dense(4)]
    model = tf.keras.Sequential([tf.keras.Input([8, 8, 1]), *parts])
    model.compile(tf.keras.optimizers.legacy.SGD(0.1), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return tf.keras.estimator.model_to_estimator(model, model_dir=folder)


def digest(strategy: Optional[tf.distribute.Strategy], make: Any, section: TrainerSection) -> str:
    """Trains as a task does, to compare the results of repeated trainings."""
    seeds.begin(section)
    with tempfile.TemporaryDirectory() as folder:
        estimator = distribute(make(folder), strategy, None, in_cluster=False)
        estimator.train(input_fn, steps=STEPS)
        checkpoint = tf.train.load_checkpoint(folder)
        names = sorted(name for name in checkpoint.get_variable_to_shape_map() if not name.startswith("_"))
        assert len(names) >= 8
        content = b"".join(name.encode() + checkpoint.get_tensor(name).tobytes() for name in names)
    return hashlib.sha256(content).hexdigest()


def main(seed: int) -> None:
    """Trains each of them twice."""
    section = TrainerSection(model="m:f", train_steps=STEPS, seed=seed, deterministic=True)
    replicas = TrainStrategy.parse_obj({"strategy": "mirrored", "devices": {"cpu": 2}})
    seeds.apply(section)
    configure_devices(replicas)
    strategies = {"one_device": None, "mirrored": make_strategy(replicas)}
    for name, strategy in strategies.items():
        for make in (by_model_fn, by_keras):
            twice = [digest(strategy, make, section) for _ in range(2)]
            print(json.dumps([f"{name} {make.__name__}", *twice]), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
