"""Learning-rate schedules, the same on every path."""

from __future__ import annotations

import math
from typing import Any, Union

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


@tf.keras.utils.register_keras_serializable("tfx_estimator")
class KerasSchedule(tf.keras.optimizers.schedules.LearningRateSchedule):
    """`learning_rate` for an optimizer of Keras.

    Args:
        section: The declared optimizer, or what `get_config` wrote of it.
        train_steps: See `learning_rate`.
    """

    def __init__(self, section: Union[Optimizer, dict[str, Any]], train_steps: int) -> None:
        self.section = Optimizer.parse_obj(section)
        self.train_steps = train_steps

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the learning rate at a step, float32 scalar."""
        return learning_rate(self.section, self.train_steps, step)

    def get_config(self) -> dict[str, Any]:
        """Returns what rebuilds the schedule."""
        return {"section": self.section.dict(), "train_steps": self.train_steps}
