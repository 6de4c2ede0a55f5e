"""Optimizers and learning-rate schedules of the built-in model_fn."""

from __future__ import annotations

import math

import tensorflow as tf

from tfx_estimator.pipeline.config.optimizer import Optimizer


def learning_rate(section: Optimizer, train_steps: int, global_step: tf.Tensor) -> tf.Tensor:
    """The learning rate at a step: linear warm-up, then constant or cosine down to 0.

    Source of the cosine: Loshchilov and Hutter, SGDR, 2017, https://arxiv.org/abs/1608.03983.

    Args:
        section: The declared optimizer.
        train_steps: Step at which the cosine reaches 0.
        global_step: int64 scalar.

    Returns:
        float32 scalar.
    """
    step = tf.cast(global_step, tf.float32)
    rate = tf.constant(section.learning_rate, tf.float32)
    if section.schedule == "cosine":
        span = max(train_steps - section.warmup_steps, 1)
        progress = tf.clip_by_value((step - section.warmup_steps) / span, 0.0, 1.0)
        rate *= 0.5 * (1.0 + tf.cos(math.pi * progress))
    if section.warmup_steps:
        rate *= tf.minimum((step + 1.0) / section.warmup_steps, 1.0)
    return rate


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
