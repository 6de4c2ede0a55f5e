"""Learning-rate schedules, the same on every path."""

from __future__ import annotations

import math
from typing import Any, Union

import tensorflow as tf

from tfx_estimator.pipeline.config.optimizer import Optimizer


def learning_rate(section: Optimizer, train_steps: int, global_step: tf.Tensor, replicas: int = 1) -> tf.Tensor:
    """Returns the learning rate at a step: linear warm-up, then the schedule.

    A rate scaled by the replicas warms up from the rate of one replica, at step 0, to the scaled one: see Goyal et al.,
    https://arxiv.org/abs/1706.02677, section 2.2. With one replica the two are equal, which would drop the declared
    warm-up; there the plain warm-up from 0 applies, as without scaling.

    The schedules are those of `tf.keras.optimizers.schedules`, counted from the end of the warm-up, except for the
    boundaries of `piecewise`, which are training steps; and `one_cycle`, which rises from a 25th of the rate for the
    first 30 % of all steps, and falls to a 250,000th.

    Source of the cosine: Loshchilov and Hutter, SGDR, 2017, https://arxiv.org/abs/1608.03983; of `one_cycle`: Smith and
    Topin, Super-Convergence, 2018, https://arxiv.org/abs/1708.07120, with the numbers of PyTorch's `OneCycleLR`.

    Args:
        train_steps: Step at which schedules with `ends_with_training` end.
    """
    options = section.resolved()
    step = tf.cast(global_step, tf.float32)
    rate = tf.constant(section.learning_rate, tf.float32)
    since = step - section.warmup_steps
    progress = tf.clip_by_value(
        since / (options["decay_steps"] or max(train_steps - section.warmup_steps, 1)), 0.0, 1.0
    )
    end = (options["end_learning_rate"] or 0.0) / section.learning_rate
    if section.schedule == "cosine":
        rate *= _between(1.0, end, progress) if end else 0.5 * (1.0 + tf.cos(math.pi * progress))
    elif section.schedule in ("linear", "polynomial"):
        rate *= (1.0 - end) * tf.pow(1.0 - progress, options["power"] or 1.0) + end
    elif section.schedule in ("exponential", "inverse_time"):
        periods = tf.maximum(since, 0.0) / options["decay_steps"]
        periods = tf.floor(periods) if options["staircase"] else periods
        factor = options["decay_rate"]
        rate *= tf.pow(factor, periods) if section.schedule == "exponential" else 1.0 / (1.0 + factor * periods)
    elif section.schedule == "piecewise":
        passed = tf.reduce_sum(tf.cast(step > tf.constant(options["boundaries"], tf.float32), tf.int32))
        rate = tf.gather(tf.constant(options["values"], tf.float32), passed)
    elif section.schedule == "one_cycle":
        part = tf.clip_by_value(step / train_steps, 0.0, 1.0)
        rising = _between(1 / 25, 1.0, part / 0.3)
        rate *= tf.where(part < 0.3, rising, _between(1.0, 1 / 250_000, (part - 0.3) / 0.7))
    # Without `:=`, which AutoGraph of TensorFlow 2.21 does not know.
    factor = section.factor(replicas)
    if factor != 1.0:
        warm = tf.minimum(step / section.warmup_steps, 1.0) if section.warmup_steps else 1.0
        rate *= 1.0 + (factor - 1.0) * warm
    elif section.warmup_steps:
        rate *= tf.minimum((step + 1.0) / section.warmup_steps, 1.0)
    return rate


def _between(first: float, last: float, progress: tf.Tensor) -> tf.Tensor:
    """Interpolates between two values by half a cosine."""
    return last + (first - last) * 0.5 * (1.0 + tf.cos(math.pi * progress))


@tf.keras.utils.register_keras_serializable("tfx_estimator")
class KerasSchedule(tf.keras.optimizers.schedules.LearningRateSchedule):
    """`learning_rate` as a Keras schedule.

    Args:
        section: The declared optimizer, or its form in `get_config`.
    """

    def __init__(self, section: Union[Optimizer, dict[str, Any]], train_steps: int, replicas: int = 1) -> None:
        self.section = Optimizer.parse_obj(section)
        self.train_steps = train_steps
        self.replicas = replicas

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the learning rate at a step, float32 scalar."""
        return learning_rate(self.section, self.train_steps, step, self.replicas)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {"section": self.section.dict(), "train_steps": self.train_steps, "replicas": self.replicas}
