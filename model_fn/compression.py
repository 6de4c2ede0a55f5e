"""Gradients in two bytes an entry while they are summed over the replicas, and in their own dtype before and after.

`bf16` has the range of float32, and 8 bits of precision. `fp16` has 11, and a narrow range: it is scaled by a power of
two, so that small entries do not vanish, and what a replica gives is limited, so that the sum of all cannot overflow.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfx_estimator.pipeline.base.errors import UserCodeError

NONE = "none"
_DTYPES = {"fp16": tf.float16, "bf16": tf.bfloat16}
# A power of two is exact. An entry below 2.4e-7 loses precision, one below 1.2e-10 is 0; the sum is within 128.
_SCALE = 256.0
# Half of what float16 holds: partial sums are rounded up.
_LARGEST = 32768.0


def compress(gradient: Any, kind: str) -> Any:
    """Casts a replica's gradient, in a replica's context.

    Args:
        gradient: float tensor. `tf.IndexedSlices` are left as they are: the workers gather their rows by an operation
            that has no bfloat16, or add up those of a table, several of one row among them, before they are sent. So is
            what has two bytes an entry already.
        kind: `none`, `fp16` or `bf16`.

    Returns:
        What is to be summed over the replicas; the gradient itself where there is one replica. Of fp16, an infinite
        entry has become the largest; NaN stays.
    """
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if kind == NONE or replicas == 1 or not isinstance(gradient, tf.Tensor) or gradient.dtype.size <= 2:
        return gradient
    if kind == "fp16":
        limit = _LARGEST / replicas
        gradient = tf.clip_by_value(gradient * tf.constant(_SCALE, gradient.dtype), -limit, limit)
    return tf.cast(gradient, _DTYPES[kind])


def restore(gradient: Any, kind: str, dtype: tf.DType) -> Any:
    """Casts a sum of `compress` back.

    Args:
        kind: As of `compress`.

    Returns:
        The gradient in `dtype`; itself where it was not compressed.
    """
    if kind == NONE or gradient.dtype == dtype:
        return gradient
    gradient = tf.cast(gradient, dtype)
    return gradient / tf.constant(_SCALE, dtype) if kind == "fp16" else gradient


def refuse_compression(kind: str, target: str) -> None:
    """Refuses compression where the gradients are summed by a model_fn of the user's.

    Args:
        kind: As of `compress`.
        target: `trainer.model`.

    Raises:
        UserCodeError: Gradients are to be compressed.
    """
    if kind != NONE:
        raise UserCodeError(
            f"trainer.distribution.train.gradient_compression: {kind}, and {target!r} is a whole model_fn, which adds "
            "up its gradients by itself",
            expected="none; or a network function as trainer.model",
            todo="remove it",
        )
