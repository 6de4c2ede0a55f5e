"""The precision that a network is trained in. Its variables, loss and softmax are always float32.

Evaluation and serving compute everything in float32, from these variables.

Source: https://www.tensorflow.org/guide/mixed_precision; Micikevicius et al., Mixed Precision Training, 2018,
https://arxiv.org/abs/1710.03740.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfx_estimator.pipeline.base.errors import UserCodeError

FLOAT32, BFLOAT16, FLOAT16 = "float32", "mixed_bfloat16", "mixed_float16"
# Policies by the layers' compute dtype.
_MIXED = {"bfloat16": BFLOAT16, "float16": FLOAT16}
# Graph collection, in an Estimator, of the number of skipped steps.
SKIPPED_STEPS = "tfx_estimator_skipped_steps"
# Those of tf.keras.mixed_precision.LossScaleOptimizer.
_FIRST_SCALE, _GROWTH_STEPS, _LARGEST_SCALE = 2.0**15, 2000, 2.0**60


# In both versions of TensorFlow's API.
_ONE_COPY = (
    tf.distribute.experimental.CentralStorageStrategy,
    tf.compat.v1.distribute.experimental.CentralStorageStrategy,
)


@tf.keras.utils.register_keras_serializable(package="tfx_estimator")
class ScaledHere(tf.keras.mixed_precision.Policy):
    """`mixed_float16` by another name: by its own, Keras refuses it wherever it does not support LossScaleOptimizer.

    A LossScale works there, since each replica divides its own gradients before they are summed.
    """

    @property
    def name(self) -> str:
        """The policy's name in Keras."""
        return f"{self._name}_scaled_here"

    def get_config(self) -> dict[str, str]:
        """Returns the constructor's arguments."""
        return {"name": self._name}


def use(precision: str, trains: bool = True) -> None:
    """Sets Keras's global policy, for layers created afterwards; with float32 declared, leaves it as it is.

    Not a context manager: with several replicas the calls of a model_fn are interleaved.
    """
    one_copy = isinstance(tf.distribute.get_strategy(), _ONE_COPY)
    if precision != FLOAT32:
        of_training = ScaledHere(precision) if precision == FLOAT16 and one_copy else precision
        tf.keras.mixed_precision.set_global_policy(of_training if trains else FLOAT32)


def computes_in_half() -> bool:
    """True if Keras's current global policy computes in 16 bits, no matter who set it."""
    return tf.keras.mixed_precision.global_policy().compute_dtype in _MIXED


def require_declared(precision: str, network: tf.keras.Model, trains: bool = True) -> None:
    """Refuses a global policy that the network's function has set and the declaration has not; call it afterwards.

    Only a declared precision scales the loss of float16 and keeps variables and loss in float32. A function that sets
    the declared policy sets it for evaluations too: there its layers are changed to compute in float32.
    """
    if not trains and isinstance(network, tf.keras.layers.Layer) and _policy_name() == precision != FLOAT32:
        use(precision, trains)
        for layer in network._flatten_layers():
            if layer.compute_dtype in _MIXED and layer.variable_dtype == FLOAT32:
                layer._set_dtype_policy(FLOAT32)
    precision, found = precision if trains else FLOAT32, _policy_name()
    # float64 cannot be declared, and passes.
    if found == precision or (precision == FLOAT32 and not computes_in_half()):
        return
    mixed = _MIXED.get(tf.keras.mixed_precision.global_policy().compute_dtype, FLOAT32)
    unscaled = ": its loss would not be scaled, and small gradients would be 0" if mixed == FLOAT16 else ""
    raise UserCodeError(
        f"trainer.model: the network's function sets Keras's global policy to {found}, and trainer.precision is "
        f"{precision}{unscaled}",
        expected=f"trainer.precision: {mixed}, which sets the policy before the function is called",
        todo=f"set trainer.precision: {mixed}, and leave set_global_policy out of the function",
    )


def _policy_name() -> str:
    return str(tf.keras.mixed_precision.global_policy().get_config()["name"])


def output_dtype() -> str:
    """Returns the dtype for a last layer, whose outputs feed the loss: that of variables."""
    return tf.keras.mixed_precision.global_policy().variable_dtype


def stored(variables: Sequence[tf.Variable]) -> list[tf.Variable]:
    """Unwraps Keras's AutoCastVariables, which an Estimator under a strategy does not support."""
    return [each._variable if type(each).__name__.startswith("AutoCast") else each for each in variables]


class LossScale(tf.Module):
    """Dynamic loss scaling, which keeps small float16 gradients from underflowing to 0.

    A step in which a gradient overflows changes no weight and no slot and halves the scale. It is counted as skipped,
    but as a step for the learning rate and the position in the input. After 2,000 consecutive steps without an overflow
    the scale doubles. Constructed in the scope of the strategy, or in its replicas.
    """

    def __init__(self, first: float = _FIRST_SCALE) -> None:
        super().__init__(name="float16")
        self.value = _variable("loss_scale", first, tf.float32)
        self.good_steps = _variable("good_steps", 0, tf.int64)
        self.skipped = _variable("skipped_steps", 0, tf.int64)

    def scaled(self, loss: tf.Tensor) -> tf.Tensor:
        """Returns the loss to differentiate."""
        return loss * tf.cast(self.value, loss.dtype)

    def unscaled(self, gradients: Sequence[Any]) -> list[Any]:
        """Returns the gradients of the unscaled loss, from those of the scaled one; overflowed entries become NaN."""
        factor = 1.0 / tf.convert_to_tensor(self.value)

        def unscale(gradient: tf.Tensor) -> tf.Tensor:
            # Not infinity, which compression would limit to a finite number.
            nan = tf.constant(math.nan, gradient.dtype)
            return tf.where(tf.math.is_finite(gradient), gradient * tf.cast(factor, gradient.dtype), nan)

        return [None if each is None else unscale(tf.convert_to_tensor(each)) for each in gradients]

    def follow(self, finite: tf.Tensor) -> list[Any]:
        """Creates the operations that update the scale after a step, in cross-replica or replica context."""
        extended = tf.distribute.get_strategy().extended
        good = tf.convert_to_tensor(self.good_steps) + 1
        grows = tf.logical_and(finite, good >= _GROWTH_STEPS)
        scale = tf.convert_to_tensor(self.value)
        grown = tf.where(grows, tf.minimum(2.0 * scale, _LARGEST_SCALE), scale)
        changes = (
            (self.value, tf.where(finite, grown, tf.maximum(scale / 2.0, 1.0))),
            (self.good_steps, tf.where(tf.logical_and(finite, tf.logical_not(grows)), good, 0)),
            (self.skipped, tf.convert_to_tensor(self.skipped) + tf.cast(tf.logical_not(finite), tf.int64)),
        )
        return [
            extended.update(variable, lambda each, new: each.assign(new, read_value=False), args=(value,))
            for variable, value in changes
        ]


def all_finite(gradients: Sequence[Any]) -> tf.Tensor:
    """Returns a bool scalar: True if all entries are finite."""
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(tf.convert_to_tensor(each))) for each in gradients])


def _variable(name: str, value: float, dtype: tf.DType) -> tf.Variable:
    return tf.Variable(
        lambda: tf.constant(value, dtype),
        trainable=False,
        name=name,
        dtype=dtype,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )
