"""What a training step minimises, the same on every path and under every strategy, and its gradients."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

import tensorflow as tf
from tensorflow.python.framework import ops as tf_ops

from tfx_estimator.model_fn.step.parts import Part
from tfx_estimator.model_fn.step.precision import LossScale

# Dtypes of 16 bits that logits came in.
HALVES: set[str] = set()


def as_float(logits: tf.Tensor) -> tf.Tensor:
    """Returns logits in the precision that a loss is computed in: float32, or float64 where they have it."""
    if logits.dtype in (tf.bfloat16, tf.float16):
        HALVES.add(logits.dtype.name)
    return logits if logits.dtype == tf.float64 else tf.cast(logits, tf.float32)


def flat(labels: tf.Tensor) -> tf.Tensor:
    """Returns labels as [batch]: a preprocessing_fn may return them as [batch, 1], as TFX's examples do."""
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


def count_hits(logits: tf.Tensor, labels: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Counts the examples that are classified rightly."""
    return tf.reduce_sum(tf.cast(tf.equal(tf.argmax(logits, axis=-1), labels), dtype))


@dataclass(frozen=True)
class Objective:
    """The loss of a batch, and of each part of it.

    Args:
        loss_options: Of `classification_loss`.
        weight_decay: Factor of the L2 penalties of the network's kernels.
        global_batch_size: Examples of a step, over all replicas.
        beside: Compute each penalty on the device of its variable; else TensorFlow chooses.
        alone: Each replica trains by itself, by the mean over its own examples.
        scale: By which the loss is multiplied before it is differentiated, in float16; None in other precisions.
    """

    loss_options: Mapping[str, Any]
    weight_decay: float
    global_batch_size: int
    beside: bool = False
    alone: bool = False
    scale: Optional[LossScale] = None

    def loss(
        self,
        part: Part,
        logits: Optional[tf.Tensor],
        of_the_call: Sequence[tf.Tensor],
        variables: Iterable[tf.Variable],
    ) -> tf.Tensor:
        """Computes a part's share of the global loss: that of all parts and replicas together is that on one device.

        Args:
            logits: Of its examples, float [part, classes]; None where these are counted elsewhere.
            of_the_call: The losses that the layers brought when they were called: of weights, or means over examples.
            variables: Those whose penalties are counted here.

        Returns:
            Scalar, float64 where the logits are, else float32.
        """
        if logits is None:
            loss = tf.zeros([], tf.keras.backend.floatx())
        else:
            losses = classification_loss(part.labels, logits, **self.loss_options)
            loss = tf.reduce_sum(losses) / self.global_batch_size
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        # Each replica computes them whole; and each part lists its own, though those of weights are the same in all.
        penalties = [each if part.share is None else each * tf.cast(part.share, each.dtype) for each in of_the_call]
        penalties += self._decay(variables) if part.first else []
        if penalties:
            loss += tf.cast(tf.add_n(penalties), loss.dtype) / replicas
        return loss * replicas if self.alone else loss

    def _decay(self, variables: Iterable[tf.Variable]) -> list[tf.Tensor]:
        found = []
        for kernel in variables if self.weight_decay else ():
            if _is_kernel(kernel.name):
                with tf.device(kernel.device) if self.beside else contextlib.nullcontext():
                    found.append(self.weight_decay * tf.nn.l2_loss(kernel))
        return found

    def scaled(self, loss: tf.Tensor) -> tf.Tensor:
        """Returns the loss to differentiate: see `LossScale`."""
        return self.scale.scaled(loss) if self.scale else loss

    def unscaled(self, gradients: Sequence[Any]) -> Sequence[Any]:
        """Returns the gradients of the loss itself, of those of the scaled one."""
        return self.scale.unscaled(gradients) if self.scale else gradients


def _is_kernel(name: str) -> bool:
    """By its own name: those of networks and layers, which stand before it, may be any."""
    *_, own = re.sub(r"(/part_\d+)?(:\d+)?$", "", name).split("/")
    return "kernel" in own


def gradients_of(
    outputs: Union[tf.Tensor, Sequence[tf.Tensor]],
    variables: Sequence[Any],
    of_outputs: Optional[Sequence[Any]] = None,
    stop: Sequence[tf.Tensor] = (),
) -> list[Any]:
    """Differentiates tensors in a graph: an Estimator's, or that of a tf.function.

    The gradients are our own: a v1 optimizer's `minimize` would divide a loss that is scaled to the global batch by
    the number of replicas once more, without an error.

    Source: https://www.tensorflow.org/tutorials/distribute/custom_training#define_the_loss_function.

    Args:
        variables: What is trained, or tensors.
        of_outputs: The gradients of several tensors; None, also of one of them, is ones.
        stop: Tensors that count as constants, whatever they were made of.

    Returns:
        A gradient for each variable, computed where what it is the gradient of is; None where nothing depends on it.
    """
    graph = tf.compat.v1.get_default_graph()
    # A custom gradient may return a tensor that was made outside of the step, as a tape lets it.
    for each in graph.get_operations() if graph.building_function else ():
        if each.type == "IdentityN" and not isinstance(each._gradient_function, _Captured):
            each._gradient_function = _Captured(tf_ops.get_gradient_function(each))
    # Gated: else oneDNN fuses the gradients of a convolution's kernel and bias, which costs more than both apart.
    return tf.gradients(outputs, variables, grad_ys=of_outputs, gate_gradients=True, stop_gradients=list(stop) or None)


class _Captured:
    """A gradient whose tensors are all of the graph, which can wait for each other."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, operation: tf.Operation, *gradients: Any) -> list[Any]:
        found = self._function(operation, *gradients)
        given = found if isinstance(found, (list, tuple)) else [found]
        return [tf.convert_to_tensor(each) if isinstance(each, tf.Tensor) else each for each in given]
