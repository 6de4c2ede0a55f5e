"""Training of a user's compiled Keras model, by its own loss and optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.layers import dropout_keys
from tfx_estimator.model_fn.step.head import flat
from tfx_estimator.model_fn.step.keras_classifier import ACCURACY, LOSS
from tfx_estimator.model_fn.step.precision import FLOAT32, computes_in_half
from tfx_estimator.model_fn.user_models.keras_model import (
    class_scores,
    identifying_feature,
    inputs_of,
    output_names,
    reductions,
    served,
)
from tfx_estimator.model_fn.user_models.probabilities import gives_probabilities
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.trainer import TrainerSection

# Key, in the result of our test_step, of the values that the user's own test_step or compute_metrics returns.
RETURNED = "returned"


class CompiledClassifier(tf.keras.Model):
    """Runs a compiled model through the same steps as `KerasClassifier`.

    The loss is the user's, scaled as Keras scales it under a strategy; the reported value is that of the global batch.
    The user's own `train_step` or `test_step` is called unchanged. An evaluation reports the user's metrics, and calls
    his own `compute_metrics`.

    Args:
        weight: The feature with the examples' weights, Keras's `sample_weight`; empty for none.
    """

    def __init__(self, own: tf.keras.Model, section: TrainerSection, num_classes: int, weight: str = "") -> None:
        # The user's own model casts its inputs.
        super().__init__(name="compiled_classifier", dtype=FLOAT32 if computes_in_half() else None)
        self.own = own
        self._section = section
        self._num_classes, self._weight = num_classes, weight
        self._probabilities = gives_probabilities(own)
        # `train_step` has summed over the replicas already.
        self.distribute_reduction_method = "first"

    @property
    def metrics(self) -> list[tf.keras.metrics.Metric]:
        """The user's metrics, which Keras resets: of `compile` and `add_metric`, and those that his steps keep."""
        return list(self.own.metrics)

    def own_metrics(self) -> dict[str, float]:
        """Returns the user's metrics since their last reset; none if his own method returns them."""
        if self._is_own("test_step") or self._is_own("compute_metrics"):
            return {}
        compiled = self.own.compiled_metrics
        declared = list(compiled.metrics) if compiled is not None and compiled.built else []
        # Metrics of add_metric; one that only the train_step updates is all zeros here.
        added = [metric for metric in self._added() if any(np.any(each.numpy()) for each in metric.variables)]
        values: dict[str, Any] = {}
        for metric in (*added, *declared):
            result = metric.result()
            # As in Keras, a metric may return a dict of named values.
            values.update(result if isinstance(result, Mapping) else {metric.name: result})
        return {name: float(value) for name, value in values.items() if np.ndim(value) == 0}

    def _added(self) -> list[tf.keras.metrics.Metric]:
        """Returns the metrics of add_metric: those of neither the loss nor `compile`."""
        containers = [each for each in (self.own.compiled_loss, self.own.compiled_metrics) if each is not None]
        kept = {id(metric) for each in containers for metric in each.metrics}
        return [metric for metric in self.own.metrics if id(metric) not in kept and metric.name != LOSS]

    def _is_own(self, step: str) -> bool:
        """True if the user's class overrides this method of `tf.keras.Model`."""
        return getattr(type(self.own), step) is not getattr(tf.keras.Model, step)

    def call(self, features: dict[str, tf.Tensor], training: bool = False) -> Any:
        """Calls the model."""
        return self.own(self._inputs(features), training=training)

    def answers(self, features: dict[str, tf.Tensor], label_names: Sequence[str]) -> dict[str, tf.Tensor]:
        """Returns a served model's outputs: see `served`."""
        outputs = self(features, training=False)
        flat = tf.nest.flatten(outputs)
        if isinstance(outputs, Mapping) or len(flat) == 1:
            named = outputs if isinstance(outputs, Mapping) else flat[0]
        else:
            named = dict(zip(output_names(self.own, len(flat)), flat))
        return served(named, self._probabilities, self._num_classes, label_names)

    def train_step(self, data: tuple[dict[str, tf.Tensor], tf.Tensor]) -> dict[str, tf.Tensor]:
        """Trains one step.

        Returns:
            `loss` of the global batch, and `accuracy` if there is a score for each class; or the values that the
            user's own `train_step` returns.
        """
        features, labels = data
        inputs = self._inputs(features)
        context = tf.distribute.get_replica_context()
        weights = self._weights(features)
        if self._is_own("train_step"):
            return self._own_train_step(inputs, labels, *([] if weights is None else [weights]))
        with tf.GradientTape() as tape:
            with dropout_keys(identifying_feature(features), self._section.seed, self.optimizer.iterations):
                outputs = self.own(inputs, training=True)
            loss = self.own.compute_loss(inputs, labels, outputs, weights)
        variables = self.own.trainable_variables
        # Not apply_gradients: an optimizer of mixed precision scales the loss here.
        self.optimizer.minimize(loss, variables, tape=tape)
        reported = [tf.cast(self._reported(loss, context.num_replicas_in_sync), tf.float32)]
        if (hits := self._hits(labels, outputs)) is not None:
            reported.append(hits / tf.cast(tf.size(labels) * context.num_replicas_in_sync, tf.float32))
        # Stacked, for a single all-reduce.
        total = tf.stack(reported)
        if context.num_replicas_in_sync > 1:
            total = context.all_reduce(tf.distribute.ReduceOp.SUM, total)
        return dict(zip((LOSS, ACCURACY), tf.unstack(total, num=len(reported))))

    def _inputs(self, features: dict[str, tf.Tensor]) -> Any:
        return inputs_of(self.own, {name: each for name, each in features.items() if name != self._weight})

    def _weights(self, features: dict[str, tf.Tensor]) -> Optional[tf.Tensor]:
        """Returns the examples' weights, float32 [batch]; None without any."""
        return tf.cast(flat(features[self._weight]), tf.float32) if self._weight else None

    def _own_train_step(self, *batch: Any) -> dict[str, tf.Tensor]:
        """Returns the numbers that the user's own train_step returns, for this step alone."""
        values = self.own.train_step(batch)
        numbers = _numbers(values)
        if LOSS not in numbers:
            what = f"{', '.join(values) or 'nothing'}, and no loss"
            if LOSS in values:
                what = f"a loss of the shape {getattr(values[LOSS], 'shape', type(values[LOSS]).__name__)}"
            raise UserCodeError(
                f"the train_step of {self._section.model!r} returns {what}",
                expected="a dict with `loss`, a number: it is reported at each step, and shows if training diverges",
                todo="return its mean" if LOSS in values else "return it as well",
            )
        strategy = tf.distribute.get_strategy()
        # Keras resets its metrics at each epoch, and there is only one here: they would be means since the start of
        # training. With parameter servers all workers share the metrics, and each is at another step.
        if not isinstance(strategy, tf.distribute.ParameterServerStrategy):
            for metric in self.own.metrics:
                metric.reset_state()
        return numbers

    def test_step(self, data: tuple[dict[str, tf.Tensor], tf.Tensor]) -> dict[str, Any]:
        """Evaluates a batch.

        Returns:
            `loss`, and `accuracy` if there is a score for each class, summed over this replica's examples, and their
            number, `examples`; float64. `returned`: a dict of the numbers that the user's own `test_step`, or else
            `compute_metrics`, returns: as in Keras, those after the last batch count.
        """
        features, labels = data
        inputs = self._inputs(features)
        outputs = self.own(inputs, training=False)
        replicas = tf.distribute.get_replica_context().num_replicas_in_sync
        weights = self._weights(features)
        loss = tf.cast(self.own.compute_loss(inputs, labels, outputs, weights), tf.float64)
        examples = tf.cast(tf.size(labels), tf.float64)
        # Undo Keras's division of a mean by the number of replicas, and take the sum over the replica's examples.
        total = loss * replicas * examples if self._is_mean else tf.reduce_sum(loss)
        sums = {LOSS: tf.where(examples > 0, total, 0.0), "examples": examples}
        if (hits := self._hits(labels, outputs)) is not None:
            sums[ACCURACY] = tf.cast(hits, tf.float64)
        if self._is_own("test_step"):
            given = (inputs, labels) if weights is None else (inputs, labels, weights)
            return {**sums, RETURNED: _numbers(self.own.test_step(given))}
        if self._is_own("compute_metrics"):
            found = _numbers(self.own.compute_metrics(inputs, labels, outputs, weights))
            # Without the loss: Keras's mean of it is NaN if a replica has no example.
            return {**sums, RETURNED: {name: value for name, value in found.items() if name != LOSS}}
        self.own.compiled_metrics.update_state(labels, outputs, weights)
        return sums

    @property
    def _is_mean(self) -> bool:
        """True if the loss divides by the examples of a batch."""
        return not reductions(self.own) <= {"none", "sum"}

    def _reported(self, loss: tf.Tensor, replicas: int) -> tf.Tensor:
        """Returns the replica's share of the global batch's loss; unreduced losses are averaged."""
        return loss if loss.shape.rank == 0 else tf.reduce_mean(loss) / replicas

    def _hits(self, labels: tf.Tensor, outputs: Any) -> Any:
        """Returns the number of correct predictions, float32; None without a score for each class."""
        scores = class_scores(outputs, self._num_classes)
        if scores is None:
            return None
        return tf.reduce_sum(tf.cast(tf.equal(tf.argmax(scores, axis=-1), flat(labels)), tf.float32))


def _numbers(values: Mapping[str, Any]) -> dict[str, tf.Tensor]:
    """Returns those values of a user's step that are scalars; Keras does not show others either."""
    found = {}
    for name, value in values.items():
        if not hasattr(value, "shape") and not isinstance(value, (int, float)):
            continue
        shape = tf.TensorShape(getattr(value, "shape", ()))
        is_number = shape.num_elements() == 1 or (shape.rank is None and name == LOSS)
        if is_number and tf.as_dtype(getattr(value, "dtype", tf.float32)) != tf.string:
            found[name] = tf.reshape(tf.cast(value, tf.float32), [])
    return found
