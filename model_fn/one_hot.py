"""Refuses losses and metrics of other labels: Keras compares them with those that there are, without a word.

Labels are int64 [batch] for every compiled model. Keras makes a column of them, and spreads it over all classes, so
that the number of the class is taken for the share of each class; or over an image, so that each of its numbers is
compared with the labels of the whole batch. And what is of two classes takes any number for the share of the second.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.model_fn.own_methods import own_methods
from tfx_estimator.pipeline.errors import UserCodeError

_losses, _metrics = tf.keras.losses, tf.keras.metrics
# Which other labels than numbers are needed.
_ONE_HOT_LABELS, _LABELS_OF_EACH, _OF_TWO_CLASSES = "one-hot", "of each", "of two"
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
    _losses.log_cosh,
    _losses.huber,
    _losses.poisson,
)
# The same, and of labels that are 0 and 1.
_OF_TWO = (
    _losses.binary_crossentropy,
    _losses.binary_focal_crossentropy,
    _losses.hinge,
    _losses.squared_hinge,
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
_FUNCTIONS = {_ONE_HOT_LABELS: _ONE_HOT, _LABELS_OF_EACH: _OF_EACH, _OF_TWO_CLASSES: _OF_TWO}
_CLASSES = {
    _ONE_HOT_LABELS: _ONE_HOT_CLASSES,
    _LABELS_OF_EACH: _CLASSES_OF_EACH,
    _OF_TWO_CLASSES: (_metrics.BinaryAccuracy,),
}
# Names for which Keras chooses the function by the shapes: for such labels the sparse one, of [batch, 1] that of two
# classes.
_CHOSEN = ("accuracy", "acc", "crossentropy", "ce")
# What an output is of an example: a number, one number in a row of its own, several numbers, or an image or a sequence.
_NUMBER, _ONE, _SEVERAL, _SHAPED = "number", "one", "several", "shaped"


def refuse_one_hot(model: tf.keras.Model, target: str, outputs: Any, num_classes: int) -> None:
    """Refuses a compiled model whose loss, or one of whose metrics, is of other labels than numbers, or of two classes.

    Args:
        model: Compiled, and built.
        target: `trainer.model`.
        outputs: What it puts out of a batch.
        num_classes: Of the data; 0 where that is not known.

    Raises:
        UserCodeError: One of them is Keras's own, and is given the labels as they are.
    """
    own = own_methods(model)
    scores, check = _Scores(model, outputs), functools.partial(_check, target, num_classes)
    # A method of the user's may give them other labels. But the compiled loss is in every evaluation, given these ones,
    # unless there is a `compute_loss`.
    if "compute_loss" not in own:
        each_too = not {"train_step", "test_step"} <= set(own)
        for loss, kinds in scores.of(model.loss, lists_are_outputs=True):
            check("loss", loss, _found(loss, _losses), kinds if each_too else set())
    if {"test_step", "compute_metrics"} & set(own):
        return
    for name in ("_user_metrics", "_user_weighted_metrics"):
        for metric, kinds in scores.of(getattr(model.compiled_metrics, name, None)):
            check("metric", metric, _found(metric, _metrics), kinds)


def _check(target: str, num_classes: int, what: str, given: Any, found: Any, kinds: set[str]) -> None:
    """Refuses a loss or a metric.

    Args:
        target: `trainer.model`.
        num_classes: Of the data.
        what: It is.
        given: To `compile`.
        found: What Keras makes of that.
        kinds: Of the outputs that it is of.

    Raises:
        UserCodeError: It is of other labels.
    """
    kind = _kind(found)
    sparse = "sparse_categorical_crossentropy" if what == "loss" else "a metric such as SparseCategoricalAccuracy"
    todo = f"compile it with {sparse}, or a {what} of your own that calls tf.one_hot(labels, num_classes) itself"
    if kind == _ONE_HOT_LABELS:
        why = "is of one-hot labels"
    elif kind and _SHAPED in kinds:
        why = "is of a label for each number that the model puts out, which is no row of numbers an example: Keras "
        why += "spreads the labels of the whole batch over it"
        todo = f"end the model with a Dense layer, and compile it with {sparse}; or with a {what} of your own"
    elif kind and _SEVERAL in kinds:
        why = "is of a label for each number that the model puts out: of several classes, one-hot labels"
    elif num_classes > 2 and kinds and (kind == _OF_TWO_CLASSES or (_is_chosen(found) and kinds == {_ONE})):
        why = f"is of two classes where the model puts out one number an example; the data have {num_classes} classes"
        todo = f"end the model with Dense({num_classes}), and compile it with {sparse}; or with a {what} of your own"
    else:
        return
    name = given if isinstance(given, str) else getattr(given, "__name__", type(given).__name__)
    raise UserCodeError(
        f"trainer.model: {target!r} returns a model with the {what} {name}, which {why}",
        expected=f"a {what} of labels that are numbers, int64 [batch]",
        todo=todo,
    )


class _Scores:
    """Tells what is compared with the labels.

    Args:
        model: Compiled.
        outputs: Of the model; None if they are not known.
    """

    def __init__(self, model: tf.keras.Model, outputs: Any) -> None:
        each = [_row(output) for output in tf.nest.flatten(outputs)] if outputs is not None else []
        self._each, self._all = each, {row for row in each if row}
        if isinstance(outputs, Mapping):
            self._named = {name: _row(output) for name, output in outputs.items()}
        else:
            names = getattr(model, "output_names", None) or [f"output_{place}" for place in range(1, len(each) + 1)]
            self._named = dict(zip(names, each))

    def of(self, given: Any, lists_are_outputs: bool = False) -> Iterator[tuple[Any, set[str]]]:
        """Yields each loss or metric, and what the outputs that it is of are of an example, as far as that is known.

        Args:
            given: To `compile`.
            lists_are_outputs: Whether a flat list has one for each output, as of losses; of metrics it is for all.
        """
        if isinstance(given, Mapping):
            parts = [(each, {self._named.get(name, "")} - {""}) for name, each in given.items()]
        elif isinstance(given, Sequence) and not isinstance(given, str):
            nested = lists_are_outputs or any(tf.nest.is_nested(each) for each in given)
            by_place = nested and len(given) == len(self._each)
            parts = [(each, {self._each[place]} - {""} if by_place else self._all) for place, each in enumerate(given)]
        else:
            parts = [(given, self._all)]
        for part, rows in parts:
            yield from ((each, rows) for each in tf.nest.flatten(part) if each is not None)


def _row(output: Any) -> str:
    """What an output is of an example; empty if that is not known."""
    shape = getattr(output, "shape", None)
    if shape is None or shape.rank is None:
        return ""
    if shape.rank == 2:
        return "" if shape[-1] is None else _ONE if shape[-1] == 1 else _SEVERAL
    return _SHAPED if shape.rank > 2 else _NUMBER


def _is_chosen(found: Any) -> bool:
    return isinstance(found, str) and found.lower() in _CHOSEN


def _found(given: Any, module: Any) -> Any:
    """What Keras makes of a name."""
    if not isinstance(given, str) or _is_chosen(given):
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
        for kind, classes in _CLASSES.items():
            if any(isinstance(given, each) and _is_keras(given, each, "update_state") for each in classes):
                return kind
        wrapped = _is_keras(given, _metrics.MeanMetricWrapper, "update_state")
        function = getattr(given, "_fn", None) if wrapped else None
        if isinstance(function, _losses.Loss):
            return _kind(function)
    return next((kind for kind, functions in _FUNCTIONS.items() if any(function is each for each in functions)), None)


def _is_keras(given: Any, base: type, *methods: str) -> bool:
    return all(getattr(type(given), name) is getattr(base, name) for name in methods)
