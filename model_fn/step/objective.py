"""The loss that a training step minimises, the same on every path and under every strategy, and its gradients."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

import tensorflow as tf
from tensorflow.python.framework import ops as tf_ops

from tfx_estimator.model_fn.step.head import OF_CLASSES, Head
from tfx_estimator.model_fn.step.parts import Part
from tfx_estimator.model_fn.step.precision import LossScale


@dataclass(frozen=True)
class Objective:
    """The loss of a batch, and of each part of it.

    Args:
        loss_options: Arguments of `classification_loss`.
        weight_decay: Factor of the L2 penalties of the network's kernels.
        global_batch_size: Examples of a step, over all replicas.
        colocate: Compute each penalty on the device of its variable; else TensorFlow chooses.
        alone: Each replica trains independently, on the mean over its own examples.
        scale: The loss scale in float16; None in other precisions.
        head: The task.
    """

    loss_options: Mapping[str, Any]
    weight_decay: float
    global_batch_size: int
    colocate: bool = False
    alone: bool = False
    scale: Optional[LossScale] = None
    head: Head = OF_CLASSES

    def loss(
        self,
        part: Part,
        logits: Optional[tf.Tensor],
        layer_losses: Sequence[tf.Tensor],
        variables: Iterable[tf.Variable],
    ) -> tf.Tensor:
        """Computes a part's share of the global loss: the shares of all parts and replicas sum to that of one device.

        Args:
            logits: The examples' logits, float [part, classes]; None for a pipeline stage without the last layer.
            layer_losses: Losses that the layers' calls added: of weights, or means over examples.
            variables: Those whose penalties are counted here.

        Returns:
            Scalar, float64 if the logits are, else float32.
        """
        if logits is None:
            loss = tf.zeros([], tf.keras.backend.floatx())
        else:
            losses = self.head.losses(part.labels, logits, **self.loss_options)
            if self.head.weight:
                losses *= self.head.weights(part.features, losses)
            loss = tf.reduce_sum(losses) / self.global_batch_size
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        # Each replica computes the weights' losses in full, and each part lists them again.
        penalties = [each if part.share is None else each * tf.cast(part.share, each.dtype) for each in layer_losses]
        penalties += self._decay(variables) if part.first else []
        if penalties:
            loss += tf.cast(tf.add_n(penalties), loss.dtype) / replicas
        return loss * replicas if self.alone else loss

    def _decay(self, variables: Iterable[tf.Variable]) -> list[tf.Tensor]:
        found = []
        for kernel in variables if self.weight_decay else ():
            if _is_kernel(kernel.name):
                with tf.device(kernel.device) if self.colocate else contextlib.nullcontext():
                    found.append(self.weight_decay * tf.nn.l2_loss(kernel))
        return found

    def scaled(self, loss: tf.Tensor) -> tf.Tensor:
        """Returns the loss to differentiate: see `LossScale`."""
        return self.scale.scaled(loss) if self.scale else loss

    def unscaled(self, gradients: Sequence[Any]) -> Sequence[Any]:
        """Returns the gradients of the unscaled loss, from those of the scaled one."""
        return self.scale.unscaled(gradients) if self.scale else gradients


def _is_kernel(name: str) -> bool:
    """True if the variable's own name, without the layers' names before it, contains `kernel`."""
    *_, own = re.sub(r"(/part_\d+)?(:\d+)?$", "", name).split("/")
    return "kernel" in own


def gradients_of(
    outputs: Union[tf.Tensor, Sequence[tf.Tensor]],
    variables: Sequence[Any],
    of_outputs: Optional[Sequence[Any]] = None,
    stop: Sequence[tf.Tensor] = (),
) -> list[Any]:
    """Differentiates tensors in a graph: an Estimator's, or that of a tf.function.

    Not by a v1 optimizer's `minimize`, which would silently divide a loss that is scaled to the global batch by the
    number of replicas once more.

    Source: https://www.tensorflow.org/tutorials/distribute/custom_training#define_the_loss_function.

    Args:
        variables: Trained variables, or tensors.
        of_outputs: The incoming gradient of each output; None, for all or for one, means ones.
        stop: Tensors to treat as constants.

    Returns:
        A gradient for each variable, colocated with the operation that it differentiates; None if nothing depends on
        the variable.
    """
    graph = tf.compat.v1.get_default_graph()
    # A custom gradient may return a tensor created outside of the step, which a tape allows.
    for each in graph.get_operations() if graph.building_function else ():
        if each.type == "IdentityN" and not isinstance(each._gradient_function, _Captured):
            each._gradient_function = _Captured(tf_ops.get_gradient_function(each))
    # Gated: otherwise oneDNN fuses the gradients of a convolution's kernel and bias, which costs more than both apart.
    return tf.gradients(outputs, variables, grad_ys=of_outputs, gate_gradients=True, stop_gradients=list(stop) or None)


class _Captured:
    """A gradient function whose results are captured in the graph, so that gating can make them wait for each other."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, operation: tf.Operation, *gradients: Any) -> list[Any]:
        found = self._function(operation, *gradients)
        given = found if isinstance(found, (list, tuple)) else [found]
        return [tf.convert_to_tensor(each) if isinstance(each, tf.Tensor) else each for each in given]
