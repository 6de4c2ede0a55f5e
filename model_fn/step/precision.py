"""The precision that a network is trained in. Its variables, its loss and its softmax are float32 in any.

Evaluations and what is served compute in float32 altogether, from these variables.

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
# By what a layer computes in.
_MIXED = {"bfloat16": BFLOAT16, "float16": FLOAT16}
# In an Estimator's graph, the number of steps that were skipped.
SKIPPED_STEPS = "tfx_estimator_skipped_steps"
# As tf.keras.mixed_precision.LossScaleOptimizer.
_FIRST_SCALE, _GROWTH_STEPS, _LARGEST_SCALE = 2.0**15, 2000, 2.0**60


# Of both versions of TensorFlow's interface.
_ONE_COPY = (
    tf.distribute.experimental.CentralStorageStrategy,
    tf.compat.v1.distribute.experimental.CentralStorageStrategy,
)


@tf.keras.utils.register_keras_serializable(package="tfx_estimator")
class ScaledHere(tf.keras.mixed_precision.Policy):
    """`mixed_float16` by another name: Keras refuses it by its own wherever its LossScaleOptimizer cannot be.

    A LossScale can be, since each replica divides its own gradients before they are added up.
    """

    @property
    def name(self) -> str:
        """Of the policy, to Keras."""
        return f"{self._name}_scaled_here"

    def get_config(self) -> dict[str, str]:
        """What the policy is made of again."""
        return {"name": self._name}


def use(precision: str, trains: bool = True) -> None:
    """Has the layers that are made from here on compute in a precision; none is touched where float32 is declared.

    Not for the length of a call: under several replicas the calls of a model_fn are interleaved.
    """
    one_copy = isinstance(tf.distribute.get_strategy(), _ONE_COPY)
    if precision != FLOAT32:
        of_training = ScaledHere(precision) if precision == FLOAT16 and one_copy else precision
        tf.keras.mixed_precision.set_global_policy(of_training if trains else FLOAT32)


def computes_in_half() -> bool:
    """Tells whether a layer that is made now would compute in 16 bits, by whoever has set that."""
    return tf.keras.mixed_precision.global_policy().compute_dtype in _MIXED


def require_declared(precision: str, network: tf.keras.Model, trains: bool = True) -> None:
    """Refuses a precision that the function of a network has set by itself: to be called after the function.

    The loss of float16 is scaled, and variables and loss are float32, where the declaration says so. One that sets what
    is declared sets it for evaluations too: there its layers are made to compute in float32.
    """
    if not trains and isinstance(network, tf.keras.layers.Layer) and _policy_name() == precision != FLOAT32:
        use(precision, trains)
        for layer in network._flatten_layers():
            if layer.compute_dtype in _MIXED and layer.variable_dtype == FLOAT32:
                layer._set_dtype_policy(FLOAT32)
    precision, found = precision if trains else FLOAT32, _policy_name()
    # Of float64 nothing is declared.
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
    """Returns the dtype of a last layer, whose outputs a loss is computed of: that of variables."""
    return tf.keras.mixed_precision.global_policy().variable_dtype


def stored(variables: Sequence[tf.Variable]) -> list[tf.Variable]:
    """Returns the variables themselves, in place of Keras's wrappers, which a strategy's Estimator does not know."""
    return [each._variable if type(each).__name__.startswith("AutoCast") else each for each in variables]


class LossScale(tf.Module):
    """Keeps the gradients of float16 from becoming 0: the loss is multiplied, and the gradients are divided again.

    A step in which a gradient overflows changes no weight and no slot; it halves the scale, is counted, and is a step
    for all else: the learning rate and the position of the input. After 2,000 steps in a row without one the scale is
    doubled. To be made in the scope of the strategy, or in its replicas.
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
        """Returns the gradients of the loss itself, of those of the scaled one; what has overflowed is NaN."""
        factor = 1.0 / tf.convert_to_tensor(self.value)

        def unscale(gradient: tf.Tensor) -> tf.Tensor:
            # Compression would limit an infinite entry, which would then be taken for a number.
            nothing = tf.constant(math.nan, gradient.dtype)
            return tf.where(tf.math.is_finite(gradient), gradient * tf.cast(factor, gradient.dtype), nothing)

        return [None if each is None else unscale(tf.convert_to_tensor(each)) for each in gradients]

    def follow(self, finite: tf.Tensor) -> list[Any]:
        """Makes the operations that change the scale after a step, across the replicas or in one."""
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
    """Tells whether each number is one, bool scalar."""
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(tf.convert_to_tensor(each))) for each in gradients])


def _variable(name: str, value: float, dtype: tf.DType) -> tf.Variable:
    return tf.Variable(
        lambda: tf.constant(value, dtype),
        trainable=False,
        name=name,
        dtype=dtype,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )
