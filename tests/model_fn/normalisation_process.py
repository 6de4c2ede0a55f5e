"""Normalises batches of several means on one device and on two, which have unequal parts, and by Keras's layer.

In its own process, because logical devices must be set up before TensorFlow's first op. Prints as JSON, for each
mean, rank and number of devices, by how much the outputs, the gradients, and the moving averages differ from Keras's,
in parts of the largest of them, or of 1.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.layers import SynchronizedBatchNormalization
from tfx_estimator.model_fn.parallel.strategies import configure_devices, make_keras_strategy
from tfx_estimator.pipeline.config.distribution import TrainStrategy

MEANS = (0, 10, 255, 1000)
SHAPES = ((16, 5, 5, 3), (32, 7))


def outcome(kind: Any, strategy: tf.distribute.Strategy, inputs: np.ndarray) -> list[np.ndarray]:
    """Returns outputs, gradients of inputs and weights, and moving averages of one call in training."""
    channels = inputs.shape[-1]
    factors = np.random.default_rng(2).normal(size=inputs.shape).astype(np.float32)
    with strategy.scope():
        layer = kind(momentum=0.7)
        layer.build(inputs.shape)
        scale = np.linspace(0.5, 1.5, channels), np.linspace(-1, 1, channels)
        layer.set_weights([*scale, *layer.get_weights()[2:]])
    cut, replicas = len(inputs) // 4, strategy.num_replicas_in_sync

    def replica() -> Any:
        part, number = slice(None), tf.distribute.get_replica_context().replica_id_in_sync_group
        if replicas == 2:
            part = slice(cut * number, cut + (len(inputs) - cut) * number)
        values = tf.constant(inputs)[part]
        outputs = layer(values, training=True)
        loss = tf.reduce_sum(tf.sin(outputs) * tf.constant(factors)[part])
        return outputs, tf.gradients(loss, [values, *layer.trainable_variables])

    outputs, gradients = tf.function(lambda: strategy.run(replica))()
    (out, of_inputs), of_weights = (
        [[each.numpy() for each in strategy.experimental_local_results(value)] for value in values]
        for values in ((outputs, gradients[0]), gradients[1:])
    )
    averages = [each.numpy() for each in layer.non_trainable_weights]
    return [np.concatenate(out), np.concatenate(of_inputs), *map(sum, of_weights), *averages]


def main() -> None:
    section = TrainStrategy.parse_obj({"strategy": "mirrored", "devices": {"cpu": 2}})
    configure_devices(section)
    strategies = tf.distribute.get_strategy(), make_keras_strategy(section)
    for shape in SHAPES:
        for mean in MEANS:
            inputs = np.random.default_rng(1).normal(mean, 1.0, size=shape).astype(np.float32)
            # No two parts of a batch have the same mean.
            inputs[: len(inputs) // 2] += 1.0
            keras = outcome(tf.keras.layers.BatchNormalization, strategies[0], inputs)
            for strategy in strategies:
                ours = outcome(SynchronizedBatchNormalization, strategy, inputs)
                differences = [
                    float(np.abs(one - other).max() / max(np.abs(other).max(), 1)) for one, other in zip(ours, keras)
                ]
                print(json.dumps([mean, len(shape), strategy.num_replicas_in_sync, differences]), flush=True)


if __name__ == "__main__":
    main()
