"""One step's update, the same under every strategy: loss scale, gradients, then reduce and apply.

The gradients are our own. A v1 optimizer's `minimize` would divide a loss that is scaled to the global batch by the
number of replicas once more, without an error.

Source: https://www.tensorflow.org/tutorials/distribute/custom_training#define_the_loss_function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


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


def gradients_of(loss: tf.Tensor, variables: Sequence[tf.Variable]) -> list[Any]:
    """Differentiates a loss in an Estimator's graph.

    Args:
        loss: Of `global_loss`.
        variables: What is trained.

    Returns:
        A gradient for each variable; None where the loss does not depend on it.
    """
    # Gated: else oneDNN fuses the gradients of a convolution's kernel and bias, which costs more than both apart.
    return tf.gradients(loss, variables, gate_gradients=True)


def update(
    gradients: Sequence[Any],
    variables: Sequence[tf.Variable],
    optimizer: tf.compat.v1.train.Optimizer,
    step: tf.Variable,
    before: Sequence[tf.Operation] = (),
) -> tf.Operation:
    """Makes the op that trains one step.

    Args:
        gradients: Of this replica, one a variable.
        variables: What is trained.
        optimizer: Sums the gradients over the replicas, and applies them.
        step: The global step, int64 scalar; it grows by 1.
        before: Ops that belong to the step, such as moving averages of batch normalisation.

    Returns:
        The op.
    """
    with tf.control_dependencies(before):
        return optimizer.apply_gradients(list(zip(gradients, variables)), global_step=step)
