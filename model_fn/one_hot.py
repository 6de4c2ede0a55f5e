"""Refuses losses and metrics of one-hot labels: Keras compares them with labels that are numbers, without a word.

Labels are int64 [batch] for every compiled model. Keras makes a column of them, and spreads it over all classes, so
that the number of the class is taken for the share of each class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.model_fn.keras_model import is_subclassed
from tfx_estimator.model_fn.own_methods import own_methods
from tfx_estimator.pipeline.errors import UserCodeError

_losses, _metrics = tf.keras.losses, tf.keras.metrics
# Keras's own, by whichever name or class they are given. A function or a class of the user's is never refused, because
# it may call tf.one_hot itself.
_ONE_HOT = (
    _losses.categorical_crossentropy,
    _losses.categorical_focal_crossentropy,
    _losses.kl_divergence,
    _losses.categorical_hinge,
    _losses.cosine_similarity,
    _metrics.categorical_accuracy,
    _metrics.top_k_categorical_accuracy,
)
# They need a label for each number that the model puts out: right for [batch, 1], and one-hot labels for the scores of
# several classes.
_OF_EACH = (
    _losses.mean_squared_error,
    _losses.mean_absolute_error,
    _losses.mean_absolute_percentage_error,
    _losses.mean_squared_logarithmic_error,
    _losses.binary_crossentropy,
    _losses.binary_focal_crossentropy,
    _losses.hinge,
    _losses.squared_hinge,
    _losses.log_cosh,
    _losses.huber,
    _losses.poisson,
    _metrics.binary_accuracy,
)
# Metrics of both kinds that are not the mean of one of these functions.
_ONE_HOT_CLASSES = (
    _metrics.CategoricalAccuracy,
    _metrics.TopKCategoricalAccuracy,
    _metrics.CosineSimilarity,
    _metrics.FBetaScore,
    _metrics.OneHotIoU,
    _metrics.OneHotMeanIoU,
)
_CLASSES_OF_EACH = (
    _metrics.BinaryAccuracy,
    _metrics.RootMeanSquaredError,
    _metrics.R2Score,
    _metrics.AUC,
    _metrics.Precision,
    _metrics.Recall,
    _metrics.TruePositives,
    _metrics.TrueNegatives,
    _metrics.FalsePositives,
    _metrics.FalseNegatives,
    _metrics.PrecisionAtRecall,
    _metrics.RecallAtPrecision,
    _metrics.SensitivityAtSpecificity,
    _metrics.SpecificityAtSensitivity,
)
# Names for which Keras chooses the function by the shapes; for such labels it is the sparse one.
_CHOSEN = ("accuracy", "acc", "crossentropy", "ce")


def refuse_one_hot(model: tf.keras.Model, target: str, outputs: Any = None) -> None:
    """Refuses a compiled model whose loss, or one of whose metrics, is of one-hot labels.

    Args:
        model: Compiled, and built.
        target: `trainer.model`.
        outputs: What it puts out of a batch; None takes what a functional model says of itself.

    Raises:
        UserCodeError: One of them is Keras's own, and is given the labels as they are.
    """
    own = own_methods(model)
    if outputs is None and not is_subclassed(model):
        outputs = model.output
    scores = _Scores(model, outputs)
    # A method of the user's may give them other labels. But the compiled loss is in every evaluation, given these ones,
    # unless there is a `compute_loss`.
    if "compute_loss" not in own:
        each_too = not {"train_step", "test_step"} <= set(own)
        for loss, of_several in scores.of(model.loss, lists_are_outputs=True):
            if (kind := _kind(_found(loss, _losses))) == "one-hot" or (kind and of_several and each_too):
                raise _error(target, "loss", loss, kind, "sparse_categorical_crossentropy, or a loss")
    if {"test_step", "compute_metrics"} & set(own):
        return
    for name in ("_user_metrics", "_user_weighted_metrics"):
        for metric, of_several in scores.of(getattr(model.compiled_metrics, name, None)):
            if (kind := _kind(_found(metric, _metrics))) == "one-hot" or (kind and of_several):
                raise _error(target, "metric", metric, kind, "a metric such as SparseCategoricalAccuracy, or one")


class _Scores:
    """Tells whether what is compared with the labels is of several numbers an example.

    Args:
        model: Compiled.
        outputs: Of the model; None if they are not known.
    """

    def __init__(self, model: tf.keras.Model, outputs: Any) -> None:
        several = [_is_several(each) for each in tf.nest.flatten(outputs)] if outputs is not None else []
        self._each, self._any = several, any(several)
        if isinstance(outputs, Mapping):
            self._named = {name: _is_several(each) for name, each in outputs.items()}
        else:
            names = getattr(model, "output_names", None) or [f"output_{place}" for place in range(1, len(several) + 1)]
            self._named = dict(zip(names, several))

    def of(self, given: Any, lists_are_outputs: bool = False) -> Iterator[tuple[Any, bool]]:
        """Yields each loss or metric, and whether an output that it is of has several numbers an example.

        Args:
            given: To `compile`.
            lists_are_outputs: Whether a flat list has one for each output, as of losses; of metrics it is for all.
        """
        if isinstance(given, Mapping):
            parts = [(each, self._named.get(name, False)) for name, each in given.items()]
        elif isinstance(given, Sequence) and not isinstance(given, str):
            nested = lists_are_outputs or any(tf.nest.is_nested(each) for each in given)
            by_place = nested and len(given) == len(self._each)
            parts = [(each, self._each[place] if by_place else self._any) for place, each in enumerate(given)]
        else:
            parts = [(given, self._any)]
        for part, several in parts:
            yield from ((each, several) for each in tf.nest.flatten(part) if each is not None)


def _is_several(output: Any) -> bool:
    shape = getattr(output, "shape", None)
    return shape is not None and len(shape) == 2 and shape[-1] is not None and shape[-1] > 1


def _found(given: Any, module: Any) -> Any:
    """What Keras makes of a name."""
    if not isinstance(given, str) or given.lower() in _CHOSEN:
        return given
    try:
        return module.get(given)
    except ValueError:
        # Keras tells of it.
        return None


def _kind(given: Any) -> Optional[str]:
    """Which other labels than numbers a loss or a metric of Keras's own needs; None if it needs none, or is no such."""
    function = given
    if isinstance(given, _losses.Loss):
        # A class of the user's that calls it otherwise is his own.
        function = (
            getattr(given, "fn", None) if _is_keras(given, _losses.MeanSquaredError, "call", "__call__") else None
        )
    elif isinstance(given, _metrics.Metric):
        for kind, classes in (("one-hot", _ONE_HOT_CLASSES), ("of each", _CLASSES_OF_EACH)):
            if any(isinstance(given, each) and _is_keras(given, each, "update_state") for each in classes):
                return kind
        wrapped = _is_keras(given, _metrics.MeanMetricWrapper, "update_state")
        function = getattr(given, "_fn", None) if wrapped else None
        if isinstance(function, _losses.Loss):
            return _kind(function)
    if any(function is each for each in _ONE_HOT):
        return "one-hot"
    return "of each" if any(function is each for each in _OF_EACH) else None


def _is_keras(given: Any, base: type, *methods: str) -> bool:
    return all(getattr(type(given), name) is getattr(base, name) for name in methods)


def _error(target: str, what: str, given: Any, kind: Optional[str], instead: str) -> UserCodeError:
    name = given if isinstance(given, str) else getattr(given, "__name__", type(given).__name__)
    why = "is of one-hot labels"
    if kind != "one-hot":
        why = "is of a label for each number that the model puts out: of several classes, one-hot labels"
    return UserCodeError(
        f"trainer.model: {target!r} returns a model with the {what} {name}, which {why}",
        expected=f"a {what} of labels that are numbers, int64 [batch]",
        todo=f"compile it with {instead} of your own that calls tf.one_hot(labels, num_classes) itself",
    )
