"""One step's update, the same under every strategy: loss scale, gradients, then reduce and apply.

The gradients are our own. A v1 optimizer's `minimize` would divide a loss that is scaled to the global batch by the
number of replicas once more, without an error.

Source: https://www.tensorflow.org/tutorials/distribute/custom_training#define_the_loss_function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional, Union

import tensorflow as tf
from tensorflow.python.framework import ops as tf_ops


def global_loss(per_example: tf.Tensor, global_batch_size: int, penalties: Sequence[tf.Tensor] = ()) -> tf.Tensor:
    """Scales a replica's loss so that the sum over all replicas is the loss on one device.

    Args:
        per_example: Losses of the replica's examples, float [batch].
        global_batch_size: Examples of a step, over all replicas.
        penalties: Scalars that each replica computes whole, such as weight decay.

    Returns:
        Scalar, of the dtype of `per_example`.
    """
    loss = tf.reduce_sum(per_example) / global_batch_size
    if penalties:
        loss += tf.cast(tf.add_n(list(penalties)), loss.dtype) / tf.distribute.get_strategy().num_replicas_in_sync
    return loss


def gradients_of(
    loss: Union[tf.Tensor, Sequence[tf.Tensor]],
    variables: Sequence[Any],
    of_outputs: Optional[Sequence[Any]] = None,
    stop: Sequence[tf.Tensor] = (),
) -> list[Any]:
    """Differentiates a loss in a graph: an Estimator's, or that of a tf.function.

    Args:
        loss: Of `global_loss`; or several tensors.
        variables: What is trained, or tensors.
        of_outputs: The gradients of several tensors; None, also of one of them, is ones.
        stop: Tensors that count as constants, whatever they were made of.

    Returns:
        A gradient for each variable, computed where what it is the gradient of is; None where the loss does not depend
        on it.
    """
    graph = tf.compat.v1.get_default_graph()
    # A custom gradient may return a tensor that was made outside of the step, as a tape lets it.
    for each in graph.get_operations() if graph.building_function else ():
        if each.type == "IdentityN" and not isinstance(each._gradient_function, _Captured):
            each._gradient_function = _Captured(tf_ops.get_gradient_function(each))
    # Gated: else oneDNN fuses the gradients of a convolution's kernel and bias, which costs more than both apart.
    return tf.gradients(loss, variables, grad_ys=of_outputs, gate_gradients=True, stop_gradients=list(stop) or None)


class _Captured:
    """A gradient whose tensors are all of the graph, which can wait for each other."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, operation: tf.Operation, *gradients: Any) -> list[Any]:
        found = self._function(operation, *gradients)
        flat = found if isinstance(found, (list, tuple)) else [found]
        return [tf.convert_to_tensor(each) if isinstance(each, tf.Tensor) else each for each in flat]


def update(
    gradients: Sequence[Any],
    variables: Sequence[tf.Variable],
    optimizer: tf.compat.v1.train.Optimizer,
    step: tf.Variable,
    before: Sequence[tf.Operation] = (),
) -> tf.Operation:
    """Makes the op that trains one step.

    Args:
        optimizer: Sums the gradients over the replicas, and applies them.
        step: The global step, int64 scalar; it grows by 1.
        before: Ops that belong to the step, such as moving averages of batch normalisation.
    """
    with tf.control_dependencies(before):
        return optimizer.apply_gradients(list(zip(gradients, variables)), global_step=step)
