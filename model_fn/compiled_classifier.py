"""A compiled Keras model of the user's, trained by its own loss and optimizer as a network is by the declared ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.keras_classifier import ACCURACY, LOSS
from tfx_estimator.model_fn.keras_model import class_scores, gives_probabilities, inputs_of, served, told_apart
from tfx_estimator.model_fn.layers import dropout_keys
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.errors import UserCodeError


class CompiledClassifier(tf.keras.Model):
    """Drives a compiled model through the steps that `KerasClassifier` has.

    The loss is the user's, scaled as Keras scales it under a strategy; what is reported of it is that of the global
    batch. A `train_step` of the user's own is called as it is. His metrics are those of an evaluation.

    Args:
        own: The compiled model, built.
        section: The declared trainer.
        num_classes: Of the data.
    """

    def __init__(self, own: tf.keras.Model, section: TrainerSection, num_classes: int) -> None:
        super().__init__(name="compiled_classifier")
        self.own = own
        self._section = section
        self._num_classes = num_classes
        self._probabilities = gives_probabilities(own)
        # `train_step` has added up already.
        self.distribute_reduction_method = "first"

    @property
    def metrics(self) -> list[tf.keras.metrics.Metric]:
        """The user's, which Keras resets."""
        compiled = self.own.compiled_metrics
        return list(compiled.metrics) if compiled is not None and compiled.built else []

    def own_metrics(self) -> dict[str, float]:
        """The user's metrics of what has been evaluated since they were reset."""
        values = {metric.name: metric.result() for metric in self.metrics}
        return {name: float(value) for name, value in values.items() if np.ndim(value) == 0}

    def call(self, features: dict[str, tf.Tensor], training: bool = False) -> Any:
        """Calls the model.

        Args:
            features: What its inputs are named after, or `image`.
            training: As of any Keras model.

        Returns:
            Its outputs.
        """
        return self.own(inputs_of(self.own, features), training=training)

    def answers(self, features: dict[str, tf.Tensor], label_names: Sequence[str]) -> dict[str, tf.Tensor]:
        """What a served model answers: see `served`."""
        outputs = self(features, training=False)
        flat = tf.nest.flatten(outputs)
        if isinstance(outputs, Mapping) or len(flat) == 1:
            named = outputs if isinstance(outputs, Mapping) else flat[0]
        else:
            named = dict(zip(self.own.output_names, flat))
        return served(named, self._probabilities, self._num_classes, label_names)

    def train_step(self, data: tuple[dict[str, tf.Tensor], tf.Tensor]) -> dict[str, tf.Tensor]:
        """Trains one step.

        Args:
            data: Features and labels of this replica; labels are int64 [batch].

        Returns:
            `loss` of the global batch, and `accuracy` where there is a score for each class; or what a `train_step` of
            the user's own returns.
        """
        features, labels = data
        inputs = inputs_of(self.own, features)
        context = tf.distribute.get_replica_context()
        if type(self.own).train_step is not tf.keras.Model.train_step:
            values = self.own.train_step((inputs, labels))
            if LOSS not in values:
                raise UserCodeError(
                    f"the train_step of {self._section.model!r} returns {', '.join(values) or 'nothing'}, and no loss",
                    expected="a dict with `loss`: what it is at each step is reported, and tells a diverged training",
                    todo="return it as well",
                )
            return {name: tf.cast(each, tf.float32) for name, each in values.items()}
        with tf.GradientTape() as tape:
            with dropout_keys(told_apart(features), self._section.seed, self.optimizer.iterations):
                outputs = self.own(inputs, training=True)
            loss = self.own.compute_loss(inputs, labels, outputs, None)
        variables = self.own.trainable_variables
        # Not apply_gradients: an optimizer of mixed precision scales the loss here.
        self.optimizer.minimize(loss, variables, tape=tape)
        reported = [tf.cast(self._reported(loss, context.num_replicas_in_sync), tf.float32)]
        if (hits := self._hits(labels, outputs)) is not None:
            reported.append(hits / tf.cast(tf.size(labels) * context.num_replicas_in_sync, tf.float32))
        # In one message.
        total = tf.stack(reported)
        if context.num_replicas_in_sync > 1:
            total = context.all_reduce(tf.distribute.ReduceOp.SUM, total)
        return dict(zip((LOSS, ACCURACY), tf.unstack(total, num=len(reported))))

    def test_step(self, data: tuple[dict[str, tf.Tensor], tf.Tensor]) -> dict[str, tf.Tensor]:
        """Evaluates a batch.

        Args:
            data: As of `train_step`.

        Returns:
            Sums over this replica's examples, and their number, float64: `loss`, `examples`, and `accuracy` where there
            is a score for each class.
        """
        features, labels = data
        inputs = inputs_of(self.own, features)
        outputs = self.own(inputs, training=False)
        replicas = tf.distribute.get_replica_context().num_replicas_in_sync
        loss = tf.cast(self.own.compute_loss(inputs, labels, outputs, None), tf.float64)
        examples = tf.cast(tf.size(labels), tf.float64)
        self.own.compiled_metrics.update_state(labels, outputs, None)
        # Of a mean, that of the replica's examples: Keras divides it by the replicas, to add it up.
        total = loss * replicas * examples if self._is_mean else tf.reduce_sum(loss)
        sums = {LOSS: tf.where(examples > 0, total, 0.0), "examples": examples}
        if (hits := self._hits(labels, outputs)) is not None:
            sums[ACCURACY] = tf.cast(hits, tf.float64)
        return sums

    @property
    def _is_mean(self) -> bool:
        """Does the loss divide by the examples of a batch."""
        return getattr(self.own.loss, "reduction", None) not in ("none", "sum")

    def _reported(self, loss: tf.Tensor, replicas: int) -> tf.Tensor:
        """The replica's part of the loss of the global batch; a loss of each example is the mean of them."""
        return loss if loss.shape.rank == 0 else tf.reduce_mean(loss) / replicas

    def _hits(self, labels: tf.Tensor, outputs: Any) -> Any:
        """How many are right, float32; None without a score for each class."""
        scores = class_scores(outputs, self._num_classes)
        if scores is None:
            return None
        return tf.reduce_sum(tf.cast(tf.equal(tf.argmax(scores, axis=-1), labels), tf.float32))
