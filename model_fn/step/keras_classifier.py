"""The Keras model that trains any network function: the counterpart of `make_model_fn` for Keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import tensorflow as tf

from tfx_estimator.model_fn.parallel.division import Division
from tfx_estimator.model_fn.step.compiling import Compiler
from tfx_estimator.model_fn.step.head import OF_CLASSES, Head, flat
from tfx_estimator.model_fn.step.objective import Objective
from tfx_estimator.model_fn.step.precision import FLOAT32, computes_in_half
from tfx_estimator.model_fn.step.step import Step, logits_of
from tfx_estimator.model_fn.unconverted import unconverted
from tfx_estimator.pipeline.config.runtime import parts_at_once
from tfx_estimator.pipeline.config.trainer import TrainerSection

# Keys of the values that a training or evaluation step returns.
LOSS = "loss"
ACCURACY = "accuracy"
BY_SCORE = "by_score"
# In float16 only.
LOSS_SCALE, SKIPPED = "loss_scale", "skipped_steps"


class KerasClassifier(tf.keras.Model):
    """Trains a network as the built-in model_fn does: the same loss, the same update, under every strategy.

    `train_step` follows Keras's contract, so that `fit` and a custom loop run the same code. It returns the loss and
    the accuracy of the global batch before the update, the same on each replica.

    Args:
        network: Maps images, float [batch, height, width, channels], to logits [batch, num_classes].
        section: The declared trainer, with class weights by label.
        head: The task.

    Source: https://www.tensorflow.org/guide/keras/customizing_what_happens_in_fit.
    """

    def __init__(
        self,
        network: tf.keras.Model,
        section: TrainerSection,
        division: Optional[Division] = None,
        head: Head = OF_CLASSES,
    ) -> None:
        # float32, or else Keras would scale the loss of float16 itself, and with its own optimizer only.
        super().__init__(name="classifier", dtype=FLOAT32 if computes_in_half() else None)
        self.network = network
        self._section = section
        self._division = division
        self._head = head
        self._compiler = Compiler(network)
        # `train_step` has summed over the replicas already.
        self.distribute_reduction_method = "first"

    def call(self, features: dict[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        """Computes the logits: see `logits_of`."""
        return logits_of(self.network, self._head.inputs(features), training, self._division)

    @unconverted
    def answers(self, features: dict[str, tf.Tensor], label_names: Sequence[str]) -> dict[str, tf.Tensor]:
        """Returns a served model's outputs: see `Head`."""
        return self._head.answers(self(features, training=False), label_names)

    def own_metrics(self) -> dict[str, float]:
        """Returns the metrics of the user's model: a network has none."""
        return {}

    @unconverted
    def train_step(self, data: tuple[dict[str, tf.Tensor], tf.Tensor]) -> dict[str, tf.Tensor]:
        """Trains one step.

        Args:
            data: Features and labels of this replica; labels are [batch]: int64, or float32 of a regression.

        Returns:
            `loss` of the global batch and, of classes, `accuracy`; of the replica's batch with `sync_every`. In float16
            also the loss scale and the number of skipped steps.
        """
        section = self._section
        objective = Objective(
            loss_options=section.loss_options,
            weight_decay=section.optimizer.weight_decay,
            global_batch_size=section.global_batch_size,
            colocate=self._division is not None,
            alone=section.sync_every is not None,
            scale=getattr(self.optimizer, "loss_scale", None),
            head=self._head,
        )
        step = Step(
            network=self.network,
            optimizer=self.optimizer,
            objective=objective,
            call=lambda part: self(part, training=True),
            seed=section.seed,
            division=self._division,
            in_turn=section.gradient_accumulation,
            at_once=parts_at_once(section),
            xla=section.xla,
            compiler=self._compiler,
        )

        def train(features: dict[str, tf.Tensor], labels: tf.Tensor) -> dict[str, tf.Tensor]:
            computed = step.compute(features, labels)
            accuracy = computed.hits / section.global_batch_size
            if objective.alone:
                self.optimizer.apply_gradients(step.pairs(computed), experimental_aggregate_gradients=False)
                return {LOSS: computed.loss, ACCURACY: accuracy * tf.distribute.get_strategy().num_replicas_in_sync}
            reported = self.optimizer.apply_and_sum(step.pairs(computed), tf.stack([computed.loss, accuracy]))
            values = {LOSS: reported[0], ACCURACY: reported[1]}
            scale = objective.scale
            if scale is not None:
                values |= {LOSS_SCALE: tf.identity(scale.value), SKIPPED: tf.identity(scale.skipped)}
            return values

        return self._named(step.run(train, data[0], flat(data[1])))

    @unconverted
    def test_step(self, data: tuple[dict[str, tf.Tensor], tf.Tensor]) -> dict[str, tf.Tensor]:
        """Evaluates a batch; the loss is neither smoothed nor weighted by class: it compares across declarations.

        Returns:
            `loss` and, of classes, `accuracy` summed over this replica's examples, and their number, `examples`; or, if
            examples have weights, the sums of what these weigh. Of two classes also those of `Head.by_score`. float64.
        """
        features, labels = data[0], flat(data[1])
        logits = self(features, training=False)
        losses = tf.cast(self._head.losses(labels, logits), tf.float64)
        weights = self._head.weights(features, losses)
        sums = {LOSS: tf.reduce_sum(losses * weights), "examples": tf.reduce_sum(weights)}
        if not self._head.is_regression:
            hits = tf.cast(tf.equal(tf.argmax(logits, axis=-1), labels), tf.float64)
            sums[ACCURACY] = tf.reduce_sum(hits * weights)
        if self._head.is_binary:
            sums[BY_SCORE] = self._head.by_score(logits, labels, weights)
        return sums

    def _named(self, values: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns a step's values without those that a regression does not have."""
        return {name: each for name, each in values.items() if name != ACCURACY or not self._head.is_regression}
