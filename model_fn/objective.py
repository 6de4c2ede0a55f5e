"""What a training step minimises, the same on every path, and what it counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.model_fn.accumulation import Part, part_penalties
from tfx_estimator.model_fn.loss import classification_loss, weight_decay
from tfx_estimator.model_fn.precision import LossScale
from tfx_estimator.model_fn.update import global_loss


@dataclass(frozen=True)
class Objective:
    """The loss of a batch, and of each part of it.

    Args:
        loss_options: Of `classification_loss`.
        global_batch_size: Examples of a step, over all replicas.
        beside: See `loss.weight_decay`.
        scale: By which the loss is multiplied before it is differentiated, in float16; None in other precisions.
    """

    loss_options: Mapping[str, Any]
    weight_decay: float
    global_batch_size: int
    beside: bool = False
    scale: Optional[LossScale] = None

    def loss(
        self, part: Part, logits: tf.Tensor, of_the_call: Sequence[tf.Tensor], variables: Iterable[tf.Variable]
    ) -> tf.Tensor:
        """Computes a part's share of the global loss.

        Args:
            logits: Of its examples, float [part, classes].
            of_the_call: The losses that the network's layers brought when it was called.
        """
        per_example = classification_loss(part.labels, logits, **self.loss_options)
        of_the_weights = weight_decay(variables, self.weight_decay, self.beside)
        return global_loss(per_example, self.global_batch_size, part_penalties(part, of_the_call, of_the_weights))

    def scaled(self, loss: tf.Tensor) -> tf.Tensor:
        """Returns the loss to differentiate: see `LossScale`."""
        return self.scale.scaled(loss) if self.scale else loss

    def unscaled(self, gradients: Sequence[Any]) -> Sequence[Any]:
        """Returns the gradients of the loss itself, of those of the scaled one."""
        return self.scale.unscaled(gradients) if self.scale else gradients

    def of_pipeline(self) -> dict[str, Any]:
        """Returns what a pipeline of stages, which computes the loss by itself, needs to scale it."""
        return {"scaled": self.scale.scaled} if self.scale else {}


def count_hits(logits: tf.Tensor, labels: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Counts the examples that are classified rightly.

    Args:
        logits: Float, [batch, classes].
        labels: int64, [batch].
    """
    return tf.reduce_sum(tf.cast(tf.equal(tf.argmax(logits, axis=-1), labels), dtype))
