"""The loss of each example, declared once and the same on every path."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence

import tensorflow as tf


def as_float(logits: tf.Tensor) -> tf.Tensor:
    """Returns logits in the precision that a loss is computed in: float32, or float64 where they have it.

    Args:
        logits: float, [batch, classes].
    """
    return logits if logits.dtype == tf.float64 else tf.cast(logits, tf.float32)


def flat(labels: tf.Tensor) -> tf.Tensor:
    """Returns labels as [batch]: a preprocessing_fn may return them as [batch, 1], as TFX's examples do.

    Args:
        labels: int64, [batch] or [batch, 1].
    """
    return labels if tf.TensorShape(labels.shape).rank == 1 else tf.reshape(labels, [-1])


def classification_loss(
    labels: tf.Tensor, logits: tf.Tensor, label_smoothing: float = 0.0, class_weights: Sequence[float] = ()
) -> tf.Tensor:
    """The cross-entropy of each example.

    Source of the smoothing: Szegedy et al., Rethinking the Inception Architecture for Computer Vision, 2016,
    https://arxiv.org/abs/1512.00567; as `tf.keras.losses.CategoricalCrossentropy` has it. The weights are those of
    `class_weight` of `tf.keras.Model.fit`: the sum over a batch is not divided by the sum of its weights.

    Args:
        labels: int64, [batch].
        logits: float, [batch, classes].
        label_smoothing: Part of the target that is shared evenly among all classes.
        class_weights: Factor of an example's loss, by label; none is 1 for each.

    Returns:
        [batch], float64 where the logits are, else float32.
    """
    logits = as_float(logits)
    if label_smoothing:
        classes = logits.shape[-1]
        targets = tf.one_hot(labels, classes, dtype=logits.dtype) * (1.0 - label_smoothing) + label_smoothing / classes
        per_example = tf.nn.softmax_cross_entropy_with_logits(labels=targets, logits=logits)
    else:
        per_example = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    if class_weights:
        per_example *= tf.gather(tf.constant(list(class_weights), logits.dtype), labels)
    return per_example


def weight_decay(variables: Iterable[tf.Variable], factor: float, beside: bool = False) -> list[tf.Tensor]:
    """The L2 penalties of a network's kernels.

    Args:
        beside: Compute each on the device of its variable; else TensorFlow chooses.

    Returns:
        Scalars; none if the factor is 0.
    """
    found = []
    for kernel in variables if factor else ():
        if _is_kernel(kernel.name):
            with tf.device(kernel.device) if beside else contextlib.nullcontext():
                found.append(factor * tf.nn.l2_loss(kernel))
    return found


def _is_kernel(name: str) -> bool:
    """By its own name: those of networks and layers, which stand before it, may be any."""
    *_, own = re.sub(r"(/part_\d+)?(:\d+)?$", "", name).split("/")
    return "kernel" in own
