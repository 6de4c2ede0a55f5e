"""What is done with gradients between the step that computes them and the update that applies them.

Between replicas they take two bytes an entry where that is declared, and their own dtype before and after. `bf16` has
the range of float32, and 8 bits of precision. `fp16` has 11, and a narrow range: it is scaled by a power of two, so
that small entries do not vanish, and what a replica gives is limited, so that the sum of all cannot overflow.

Clipped is the gradient of the global batch: clipping each replica's own, before they are summed, would be another
training with each number of replicas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

import tensorflow as tf

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
    """Casts a sum of `compress` back."""
    if kind == NONE or gradient.dtype == dtype:
        return gradient
    gradient = tf.cast(gradient, dtype)
    return gradient / tf.constant(_SCALE, dtype) if kind == "fp16" else gradient


def global_scale(gradients: Sequence[Any], options: Mapping[str, Any]) -> Optional[tf.Tensor]:
    """Returns the factor that keeps the norm of all gradients together within `global_clip_norm`.

    Returns:
        Scalar; None where nothing is declared.
    """
    limit = options["global_clip_norm"]
    if limit is None:
        return None
    norm = tf.linalg.global_norm([tf.convert_to_tensor(each) for each in gradients])
    return limit / tf.maximum(norm, tf.constant(limit, norm.dtype))


def clip(
    gradient: tf.Tensor, scale: Optional[tf.Tensor], options: Mapping[str, Any], parts: Sequence[tf.Tensor] = ()
) -> tf.Tensor:
    """Clips one gradient as declared.

    Args:
        parts: The gradients of all parts of the variable, this one among them, where several servers have one each:
            the norm is that of the variable's. None of a whole one.
    """
    if scale is not None:
        gradient *= tf.cast(scale, gradient.dtype)
    limit = options["clip_norm"]
    if limit is not None and parts:
        norm = tf.linalg.global_norm(parts)
        if scale is not None:
            norm *= tf.cast(scale, norm.dtype)
        gradient *= tf.cast(limit / tf.maximum(norm, tf.constant(limit, norm.dtype)), gradient.dtype)
    elif limit is not None:
        gradient = tf.clip_by_norm(gradient, limit)
    if options["clip_value"] is not None:
        gradient = tf.clip_by_value(gradient, -options["clip_value"], options["clip_value"])
    return gradient
