"""Compression and clipping of gradients, between their computation and the update.

With compression, gradients take two bytes an entry between replicas, and their own dtype before and after. `bf16` has
the range of float32 and 8 bits of precision. `fp16` has 11 bits and a narrow range: gradients are scaled by a power of
two, so that small entries do not vanish, and each replica's are limited, so that the sum cannot overflow.

Clipping applies to the gradient of the global batch: clipping each replica's own, before the sum, would make the
training depend on the number of replicas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

import tensorflow as tf

NONE = "none"
_DTYPES = {"fp16": tf.float16, "bf16": tf.bfloat16}
# A power of two is exact. An entry below 2.4e-7 loses precision, one below 1.2e-10 becomes 0; the sum is within 128.
_SCALE = 256.0
# Half of float16's maximum: partial sums are rounded up.
_LARGEST = 32768.0


def compress(gradient: Any, kind: str) -> Any:
    """Casts a replica's gradient, in a replica's context.

    Args:
        gradient: float tensor. `tf.IndexedSlices` are returned unchanged: the workers gather their rows by an operation
            that does not support bfloat16, or sum repeated rows of a table before sending. Tensors with two bytes an
            entry are returned unchanged as well.
        kind: `none`, `fp16` or `bf16`.

    Returns:
        The tensor to sum over the replicas; the gradient itself if there is one replica. With fp16 an infinite entry
        becomes the limit; NaN stays.
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
    """Returns the scalar factor that limits the gradients' global norm to `global_clip_norm`; None if undeclared."""
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
        parts: The gradients of all shards of a partitioned variable, this one included: the norm is taken over all of
            them. Empty for an unpartitioned variable.
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
