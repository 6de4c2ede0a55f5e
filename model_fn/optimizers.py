"""Optimizers of the built-in model_fn."""

from __future__ import annotations

import tensorflow as tf

from tfx_estimator.pipeline.config.optimizer import Optimizer


def make_optimizer(section: Optimizer, rate: tf.Tensor) -> tf.compat.v1.train.Optimizer:
    """Builds the optimizer. The v1 classes are the ones that work in an Estimator under every strategy.

    Args:
        section: The declared optimizer.
        rate: Learning rate, float32 scalar.

    Returns:
        The optimizer.
    """
    train = tf.compat.v1.train
    if section.name == "adam":
        return train.AdamOptimizer(rate)
    if section.name == "momentum":
        return train.MomentumOptimizer(rate, section.momentum)
    return train.GradientDescentOptimizer(rate)
