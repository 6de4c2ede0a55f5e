"""What a network's outputs mean, by the task of the declaration: logits of classes, or the number of a regression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.user_models.keras_model import predictions
from tfx_estimator.pipeline.config.task import BINARY, REGRESSION

# The served output of a regression, as that of TensorFlow's canned Estimators.
_PREDICTIONS = "predictions"
# Thresholds of an AUC, as in TensorFlow's canned Estimators.
_THRESHOLDS = 200
# 16-bit dtypes of logits seen by this process.
HALVES: set[str] = set()


def as_float(logits: tf.Tensor) -> tf.Tensor:
    """Casts logits to the dtype of the loss: float32, or float64 if the logits are."""
    if logits.dtype in (tf.bfloat16, tf.float16):
        HALVES.add(logits.dtype.name)
    return logits if logits.dtype == tf.float64 else tf.cast(logits, tf.float32)


def flat(labels: tf.Tensor) -> tf.Tensor:
    """Returns labels as [batch]: a preprocessing_fn may return them as [batch, 1], as TFX's examples do."""
    return labels if tf.TensorShape(labels.shape).rank == 1 else tf.reshape(labels, [-1])


def classification_loss(
    labels: tf.Tensor, logits: tf.Tensor, label_smoothing: float = 0.0, class_weights: Sequence[float] = ()
) -> tf.Tensor:
    """Returns the cross-entropy of each example.

    Source of the smoothing: Szegedy et al., Rethinking the Inception Architecture for Computer Vision, 2016,
    https://arxiv.org/abs/1512.00567; as in `tf.keras.losses.CategoricalCrossentropy`. The weights act like
    `class_weight` of `tf.keras.Model.fit`: the sum over a batch is not divided by the sum of its weights.

    Args:
        labels: int64, [batch].
        logits: float, [batch, classes].
        label_smoothing: Fraction of the target that is spread evenly over all classes.
        class_weights: Factor of an example's loss, by label; empty is 1 for each.

    Returns:
        [batch], float64 if the logits are, else float32.
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
    """Counts the correctly classified examples."""
    return tf.reduce_sum(tf.cast(tf.equal(tf.argmax(logits, axis=-1), labels), dtype))


@dataclass(frozen=True)
class Head:
    """The loss and the served outputs of a network; by default those of classes.

    Args:
        is_regression: The network returns one number an example, float [batch, 1], and labels are float [batch].
        mean: The network learns a regression's label less this, over `deviation`: prices, say, would take it millions
            of steps.
        deviation: See `mean`; what is served is in the label's unit.
        weight: The feature with the examples' weights, [batch]; empty for none.
        is_binary: Evaluations report an AUC as well.
    """

    is_regression: bool = False
    mean: float = 0.0
    deviation: float = 1.0
    weight: str = ""
    is_binary: bool = False

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Head:
        """Returns the head by a model_fn's params: `task`, `weight`, `label_mean` and `label_deviation`."""
        moments = params.get("label_mean", 0.0), params.get("label_deviation", 1.0)
        task = params.get("task")
        return cls(task == REGRESSION, *moments, params.get("weight", ""), task == BINARY)

    def losses(self, labels: tf.Tensor, outputs: tf.Tensor, **options: Any) -> tf.Tensor:
        """Returns the loss of each example, [batch]; `options` are those of `classification_loss`."""
        if not self.is_regression:
            return classification_loss(labels, outputs, **options)
        outputs = as_float(outputs)[:, 0]
        return tf.math.squared_difference((tf.cast(labels, outputs.dtype) - self.mean) / self.deviation, outputs)

    def weights(self, features: Mapping[str, Any], like: tf.Tensor) -> tf.Tensor:
        """Returns the examples' weights, [batch], of the dtype of their losses; ones where none are declared."""
        return tf.cast(tf.reshape(features[self.weight], [-1]), like.dtype) if self.weight else tf.ones_like(like)

    def inputs(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the features of the network: all but the weights, which a served example does not have."""
        return {name: each for name, each in features.items() if name != self.weight}

    def hits(self, outputs: tf.Tensor, labels: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """Returns the number of correctly classified examples; 0 of a regression."""
        return tf.zeros([], dtype) if self.is_regression else count_hits(outputs, labels, dtype)

    def by_score(self, outputs: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Returns the weights of the examples of each label by their score between two thresholds, [thresholds, 2]."""
        scores = tf.nn.softmax(as_float(outputs))[:, 1]
        places = tf.maximum(tf.cast(tf.math.ceil(scores * (_THRESHOLDS - 1)), tf.int32) - 1, 0)
        by_label = tf.one_hot(labels, 2, dtype=weights.dtype) * weights[:, tf.newaxis]
        return tf.math.unsorted_segment_sum(by_label, places, _THRESHOLDS)

    def answers(self, outputs: tf.Tensor, label_names: Sequence[str] = ()) -> dict[str, tf.Tensor]:
        """Returns what is served: see `predictions`; of a regression `predictions`, float32 [batch, 1]."""
        if not self.is_regression:
            return predictions(outputs, label_names)
        return {_PREDICTIONS: tf.cast(outputs, tf.float32) * self.deviation + self.mean}


def auc(by_score: np.ndarray) -> float:
    """Returns the area under the ROC curve, of sums of `Head.by_score`; 0 if there is one class only."""
    above = np.cumsum(by_score[::-1], axis=0)[::-1]
    negatives, positives = (above / np.maximum(above[0], 1e-12)).T
    return float(np.sum((negatives[:-1] - negatives[1:]) * (positives[:-1] + positives[1:]) / 2))


OF_CLASSES = Head()
