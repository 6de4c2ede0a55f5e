"""The Keras model of an image classifier, around any network function: what `make_model_fn` is to an Estimator."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Optional

import tensorflow as tf

from tfx_estimator.model_fn.accumulation import Computed, Part, in_turn
from tfx_estimator.model_fn.assignments import changes_since, operation_count
from tfx_estimator.model_fn.classifier import predictions
from tfx_estimator.model_fn.compiling import Compiler, takes_step
from tfx_estimator.model_fn.division import Division
from tfx_estimator.model_fn.keras_model import inputs_of, told_apart
from tfx_estimator.model_fn.layers import dropout_keys
from tfx_estimator.model_fn.loss import as_float, classification_loss, flat
from tfx_estimator.model_fn.objective import Objective, count_hits
from tfx_estimator.model_fn.parallel_parts import in_parallel, refuse_state
from tfx_estimator.model_fn.precision import FLOAT32, computes_in_half, stored
from tfx_estimator.model_fn.update import gradients_of
from tfx_estimator.pipeline.config.parts import parts_at_once
from tfx_estimator.pipeline.config.trainer import TrainerSection

# What a step of training, or of evaluation, returns.
LOSS = "loss"
ACCURACY = "accuracy"
# Of a step in float16 as well.
LOSS_SCALE, SKIPPED = "loss_scale", "skipped_steps"


class KerasClassifier(tf.keras.Model):
    """Trains a network as the built-in model_fn does: the same loss, the same update, under every strategy.

    `train_step` is Keras's own contract, so that `fit` and a loop of one's own drive the same code. It returns the loss
    and the accuracy of the global batch, the same on each replica, before the update.

    Args:
        network: Called with images, float [batch, height, width, channels], it returns logits [batch, num_classes].
        section: The declared trainer, its class weights by label.
        division: Where the network's layers are; None is on one device.

    Source: https://www.tensorflow.org/guide/keras/customizing_what_happens_in_fit.
    """

    def __init__(self, network: tf.keras.Model, section: TrainerSection, division: Optional[Division] = None) -> None:
        # Else Keras would scale the loss of float16 by itself, and with its own optimizer only.
        super().__init__(name="classifier", dtype=FLOAT32 if computes_in_half() else None)
        self.network = network
        self._section = section
        self._division = division
        self._parallel = parts_at_once(section)
        self._compiler = Compiler(network)
        # `train_step` has added up already.
        self.distribute_reduction_method = "first"

    def call(self, features: dict[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        """Computes the logits.

        Args:
            features: With `image`, or what the network's inputs are named after.

        Returns:
            float, [batch, num_classes].
        """
        with self._division.used(self.network) if self._division else contextlib.nullcontext():
            return as_float(self.network(inputs_of(self.network, features), training=training))

    def answers(self, features: dict[str, tf.Tensor], label_names: Sequence[str]) -> dict[str, tf.Tensor]:
        """What a served model answers: see `predictions`."""
        return predictions(tf.cast(self(features, training=False), tf.float32), label_names)

    def own_metrics(self) -> dict[str, float]:
        """Metrics that the user's model brings: a network brings none."""
        return {}

    def train_step(self, data: tuple[dict[str, tf.Tensor], tf.Tensor]) -> dict[str, tf.Tensor]:
        """Trains one step.

        Args:
            data: Features and labels of this replica; labels are int64 [batch].

        Returns:
            `loss` and `accuracy` of the global batch; of the replica's part of it with `sync_every`. In float16 the
            loss's scale as well, and how many steps were skipped.
        """
        section = self._section
        features, labels = data
        data = features, flat(labels)
        if section.xla and takes_step(section.gradient_accumulation):
            return self._compiler.step(self._step)(data)
        return self._step(data)

    def _step(self, data: tuple[dict[str, tf.Tensor], tf.Tensor]) -> dict[str, tf.Tensor]:
        section = self._section
        context = tf.distribute.get_replica_context()
        # By itself, a replica trains by the mean over its own examples.
        alone = section.sync_every is not None
        variables, division = stored(self.trainable_variables), self._division
        # Made before the parts: what they assign is looked for.
        iterations = self.optimizer.iterations
        objective = Objective(
            loss_options=section.loss_options,
            weight_decay=section.optimizer.weight_decay,
            global_batch_size=section.global_batch_size,
            beside=division is not None,
            scale=getattr(self.optimizer, "loss_scale", None),
        )

        def compute(part: Part) -> Computed:
            # Graph mode: tf.gradients; GradientTape has no gate_gradients and loses device colocation.
            with tf.GradientTape() if tf.executing_eagerly() else contextlib.nullcontext() as tape:
                with dropout_keys(told_apart(part.features), section.seed, iterations):
                    logits = self(part.features, training=True)
                loss = objective.loss(part, logits, self.network.losses, self.network.trainable_variables)
                if alone:
                    loss *= context.num_replicas_in_sync
                differentiated = objective.scaled(loss)
            gradients = tape.gradient(differentiated, variables) if tape else gradients_of(differentiated, variables)
            return Computed(loss, count_hits(logits, part.labels, loss.dtype), gradients)

        parts = section.gradient_accumulation
        if division and division.stages:
            own = objective.of_pipeline()
            pipeline = division.pipeline(self.network, section, step=iterations, **own)
            whole = pipeline.compute(*data)
        else:
            compiles = section.xla and not takes_step(parts)
            of_part = in_parallel(compute, self._parallel)
            begin = operation_count()
            whole = in_turn(self._compiler.part(of_part) if compiles else of_part, *data, parts)
            if self._parallel > 1 and changes_since(begin):
                raise refuse_state(self._parallel, self.network)
        pairs = zip(objective.unscaled(whole.gradients), variables)
        accuracy = whole.hits / section.global_batch_size
        if alone:
            self.optimizer.apply_gradients(pairs, experimental_aggregate_gradients=False)
            return {LOSS: whole.loss, ACCURACY: accuracy * context.num_replicas_in_sync}
        reported = self.optimizer.apply_and_sum(pairs, tf.stack([whole.loss, accuracy]))
        values = {LOSS: reported[0], ACCURACY: reported[1]}
        if scale := objective.scale:
            values |= {LOSS_SCALE: tf.identity(scale.value), SKIPPED: tf.identity(scale.skipped)}
        return values

    def test_step(self, data: tuple[dict[str, tf.Tensor], tf.Tensor]) -> dict[str, tf.Tensor]:
        """Evaluates a batch; its loss is neither smoothed nor weighted, so that other declarations' can be compared.

        Args:
            data: As of `train_step`.

        Returns:
            Sums over this replica's examples, and their number, float64: `loss`, `accuracy`, `examples`.
        """
        features, labels = data[0], flat(data[1])
        logits = self(features, training=False)
        return {
            LOSS: tf.reduce_sum(tf.cast(classification_loss(labels, logits), tf.float64)),
            ACCURACY: count_hits(logits, labels, tf.float64),
            "examples": tf.cast(tf.size(labels), tf.float64),
        }
