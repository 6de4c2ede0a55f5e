"""Networks: functions that build a Keras model from uint8-derived, standardised images to logits.

A network function takes `num_classes` and returns an unbuilt `tf.keras.Model`: called with images, float32
[batch, height, width, channels], and `training`, it returns logits, float32 [batch, num_classes].
"""

from __future__ import annotations

import tensorflow as tf

from tfx_estimator.model_fn.layers import PooledConv2D
from tfx_estimator.model_fn.networks.resnet import cifar_resnet, cifar_resnet9
from tfx_estimator.model_fn.step.precision import output_dtype

__all__ = ["cifar_cnn", "cifar_resnet", "cifar_resnet9", "mnist_cnn"]


def mnist_cnn(num_classes: int) -> tf.keras.Model:
    """The network of TensorFlow's multi-worker tutorials: Conv32-3, MaxPool, Flatten, Dense64, Dense.

    Source: https://www.tensorflow.org/tutorials/distribute/multi_worker_with_estimator.

    Args:
        num_classes: Number of logits.

    Returns:
        An unbuilt model; 28x28x1 images make 347,146 weights.
    """
    layers = tf.keras.layers
    # No input_shape: in an Estimator a model that is built early refers to a placeholder that nobody feeds.
    return tf.keras.Sequential(
        [
            PooledConv2D(32, 3, name="conv1"),
            layers.Flatten(name="flatten"),
            layers.Dense(64, activation="relu", name="dense1"),
            layers.Dense(num_classes, dtype=output_dtype(), name="logits"),
        ],
        name="mnist_cnn",
    )


def cifar_cnn(num_classes: int) -> tf.keras.Model:
    """Two convolutions for small colour images: Conv32, MaxPool, Conv64, MaxPool, Flatten, Dense64, Dense.

    Args:
        num_classes: Number of logits.

    Returns:
        An unbuilt model; 32x32x3 images make 167,562 weights.
    """
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            PooledConv2D(32, 3, read_by=[3], name="conv1"),
            PooledConv2D(64, 3, name="conv2"),
            layers.Flatten(name="flatten"),
            layers.Dense(64, activation="relu", name="dense1"),
            layers.Dense(num_classes, dtype=output_dtype(), name="logits"),
        ],
        name="cifar_cnn",
    )
