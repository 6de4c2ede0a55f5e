"""How each optimizer changes one variable: the same operations on every path, so that the same bits come of them.

The updates are those of `tf.keras.optimizers`; `momentum` is that of `tf.compat.v1.train.MomentumOptimizer`, which
takes the learning rate into each step alone and not into what later steps remember of it. Where TensorFlow has one
fused operation for an update, it is used: on CPU that costs less than Keras's many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfx_estimator.pipeline.config.optimizer import Optimizer


@dataclass(frozen=True)
class Change:
    """One update of one variable, on its device.

    Args:
        section: The declared optimizer.
        variable: What is trained.
        gradient: Of the global batch, dense, of the variable's shape and dtype.
        slots: What the optimizer remembers of the variable, by name.
        rate: Learning rate, scalar of the variable's dtype.
        step: Updates with this one, from 1; scalar of the variable's dtype.
    """

    section: Optimizer
    variable: tf.Variable
    gradient: tf.Tensor
    slots: Mapping[str, tf.Variable]
    rate: tf.Tensor
    step: tf.Tensor

    def number(self, value: float) -> tf.Tensor:
        """Returns a constant of the variable's dtype."""
        return tf.constant(value, self.rate.dtype)


@dataclass(frozen=True)
class Rule:
    """One optimizer.

    Args:
        name: Of its slots in checkpoints.
        apply: Makes the operation of an update.
        slots: Names of its slots, which have the variable's shape and begin as zeros.
    """

    name: str
    apply: Callable[[Change], Any]
    slots: tuple[str, ...] = ()


def _sgd(change: Change) -> Any:
    return tf.raw_ops.ResourceApplyGradientDescent(var=change.variable.handle, alpha=change.rate, delta=change.gradient)


def _momentum(change: Change) -> Any:
    return tf.raw_ops.ResourceApplyMomentum(
        var=change.variable.handle,
        accum=change.slots["momentum"].handle,
        lr=change.rate,
        grad=change.gradient,
        # By way of float32, as TensorFlow 1 does.
        momentum=tf.cast(tf.constant(change.section.momentum, tf.float32), change.rate.dtype),
    )


def _adam(change: Change) -> Any:
    beta1, beta2 = change.number(0.9), change.number(0.999)
    return tf.raw_ops.ResourceApplyAdam(
        var=change.variable.handle,
        m=change.slots["m"].handle,
        v=change.slots["v"].handle,
        beta1_power=tf.pow(beta1, change.step),
        beta2_power=tf.pow(beta2, change.step),
        lr=change.rate,
        beta1=beta1,
        beta2=beta2,
        epsilon=change.number(1e-7),
        grad=change.gradient,
    )


RULES = {
    "sgd": Rule("SGD", _sgd),
    "momentum": Rule("Momentum", _momentum, ("momentum",)),
    "adam": Rule("Adam", _adam, ("m", "v")),
}
