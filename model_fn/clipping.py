"""Gradient clipping: of the gradient of the global batch, so that it is the same under every strategy.

Clipping each replica's own gradient, before they are summed, would be another training with each number of replicas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

import tensorflow as tf


def global_scale(gradients: Sequence[Any], options: Mapping[str, Any]) -> Optional[tf.Tensor]:
    """Returns the factor that keeps the norm of all gradients together within `global_clip_norm`.

    Args:
        gradients: Of the global batch, dense or `tf.IndexedSlices`.
        options: `Optimizer.resolved()`.

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
        scale: Of `global_scale`.
        options: `Optimizer.resolved()`.
        parts: The gradients of all parts of the variable, this one among them, where several servers have one each:
            the norm is that of the variable's. None of a whole one.

    Returns:
        As `gradient`; itself where nothing is declared.
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
