"""A report's evaluation of a classifier (confusion matrix, class scores, calibration) and description of its data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfx_estimator.pipeline.report.plots import draw_matrix, draw_pixels, draw_reliability

if TYPE_CHECKING:  # these import TensorFlow
    from tfx_estimator.pipeline.report.examples import DataSet, Statistics
    from tfx_estimator.pipeline.report.predictions import Predictions

BINS = 10
# A matrix of more classes is a drawing, without numbers.
_MOST_NUMBERED = 20
_SMALLEST = 1e-12


@dataclass(frozen=True)
class ClassScore:
    """Scores of one class."""

    label: int
    precision: float | None  # None without examples predicted as this class
    recall: float | None  # None without examples of this class
    f1: float | None  # None if both are
    count: int  # examples of this class
    predicted: int  # examples predicted as this class


@dataclass(frozen=True)
class Calibration:
    """Confidence and accuracy in equal bins of the predicted class's probability.

    See Guo et al., On Calibration of Modern Neural Networks, 2017, https://arxiv.org/abs/1706.04599.
    """

    confidence: np.ndarray  # mean probability of each non-empty bin
    accuracy: np.ndarray  # share of correct predictions in each non-empty bin
    counts: np.ndarray  # examples in each bin; int64 [BINS]
    ece: float  # expected calibration error: the mean distance of both, weighted by examples; 0 to 1


def confusion(labels: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """Counts examples by true class (row) and predicted class (column); int64 [classes, classes]."""
    return np.bincount(labels * classes + predicted, minlength=classes**2).reshape(classes, classes)


def score_classes(matrix: np.ndarray) -> list[ClassScore]:
    """Scores each class of a confusion matrix."""
    found = []
    for label, right in enumerate(np.diag(matrix)):
        count, predicted = int(matrix[label].sum()), int(matrix[:, label].sum())
        found.append(
            ClassScore(
                label,
                right / predicted if predicted else None,
                right / count if count else None,
                2 * right / (count + predicted) if count + predicted else None,
                count,
                predicted,
            )
        )
    return found


def most_confused(matrix: np.ndarray, most: int = 10) -> list[tuple[int, int, int]]:
    """Returns the most frequent (true class, predicted class, count) of the mistakes, the most frequent first."""
    wrong = matrix - np.diag(np.diag(matrix))
    order = np.argsort(-wrong, axis=None, kind="stable")[:most]
    pairs = [(int(index) // len(matrix), int(index) % len(matrix)) for index in order]
    return [(label, other, int(wrong[label, other])) for label, other in pairs if wrong[label, other]]


def calibrate(labels: np.ndarray, probabilities: np.ndarray) -> Calibration:
    """Compares a model's confidence with its accuracy.

    Args:
        labels: The true classes; int64 [examples].
        probabilities: float32 [examples, classes].
    """
    sure = probabilities.max(axis=1).astype(np.float64)
    right = (probabilities.argmax(axis=1) == labels).astype(np.float64)
    # As in the paper, the upper end belongs to a bin.
    bins = np.clip(np.ceil(sure * BINS).astype(int) - 1, 0, BINS - 1)
    counts = np.bincount(bins, minlength=BINS)
    filled = counts > 0
    confidence = np.bincount(bins, sure, BINS)[filled] / counts[filled]
    accuracy = np.bincount(bins, right, BINS)[filled] / counts[filled]
    ece = float((counts[filled] * np.abs(accuracy - confidence)).sum() / max(len(labels), 1))
    return Calibration(confidence, accuracy, counts, ece)


def losses(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Returns the cross-entropy of each example, natural logarithm; float64 [examples]."""
    chosen = probabilities[np.arange(len(labels)), labels].astype(np.float64)
    return -np.log(np.maximum(chosen, _SMALLEST))


@dataclass(frozen=True)
class Evaluation:
    """Results on the evaluation examples."""

    examples: int  # number of predicted examples
    mistakes: int
    accuracy: float  # 0 to 1
    loss: float
    output: str
    notes: list[str]  # a sentence each
    scores: list[ClassScore]  # of each class
    # Rows of a confusion matrix: `name` and `cells` of (count, share for its colour, whether correct).
    matrix: list[dict[str, Any]]
    drawing: str  # the matrix as an SVG, if it has no rows
    pairs: list[tuple[str, str, int, float]]  # (true class, predicted class, count, share of the true class)
    calibration: Calibration
    reliability: str
    worst: list[dict[str, Any]]  # mistakes: `shown`, `truth`, `predicted`, and numbers


@dataclass(frozen=True)
class NumberEvaluation:
    """Results of a regression on the evaluation examples, in the label's unit."""

    examples: int
    mae: float
    rmse: float
    bias: float  # mean of prediction less label
    output: str
    notes: list[str]  # a sentence each
    worst: list[dict[str, Any]]  # farthest predictions: `shown`, `truth`, `predicted`, `error`, `position`


def _evaluate_numbers(data: DataSet, predictions: Predictions) -> NumberEvaluation:
    errors = predictions.probabilities[:, 0] - predictions.labels
    worst = [
        {
            "shown": data.show(each.content),
            "truth": data.name_of(each.label),
            "predicted": data.name_of(each.predicted),
            "error": each.predicted - each.label,
            "position": each.position,
        }
        for each in predictions.worst
    ]
    root = float(np.sqrt((errors**2).mean()))
    found = float(np.abs(errors).mean()), root, float(errors.mean())
    return NumberEvaluation(len(errors), *found, predictions.output, predictions.notes, worst)


def evaluate(data: DataSet, predictions: Predictions) -> Evaluation | NumberEvaluation:
    """Scores predictions."""
    if data.is_regression:
        return _evaluate_numbers(data, predictions)
    labels, probabilities, names = predictions.labels, predictions.probabilities, data.names
    matrix = confusion(labels, probabilities.argmax(axis=1), len(names))
    calibration = calibrate(labels, probabilities)
    right, numbered = int(matrix.trace()), len(names) <= _MOST_NUMBERED
    return Evaluation(
        len(labels),
        len(labels) - right,
        right / len(labels),
        float(losses(labels, probabilities).mean()),
        predictions.output,
        predictions.notes,
        score_classes(matrix),
        _rows(names, matrix) if numbered else [],
        "" if numbered else draw_matrix(matrix),
        [
            (names[label], names[other], count, count / matrix[label].sum())
            for label, other, count in most_confused(matrix)
        ],
        calibration,
        draw_reliability(calibration),
        [
            {
                "shown": data.show(each.content),
                "truth": data.name_of(each.label),
                "predicted": data.name_of(each.predicted),
                "probability": each.probability,
                "of_truth": each.of_label,
                "loss": each.loss,
                "position": each.position,
            }
            for each in predictions.worst
        ],
    )


@dataclass(frozen=True)
class DataPart:
    """Description of a run's data."""

    splits: dict[str, Statistics]
    classes: list[dict[str, Any]]  # `name`, `counts` by split, `shares` of the largest class by split, `images`
    pixels: str
    pictured: int  # number of classes with pictures


def describe(data: DataSet, statistics: dict[str, Statistics]) -> DataPart:
    """Describes the data by the statistics of each split, with pictures of the first."""
    from tfx_estimator.pipeline.report.examples import PICTURED_CLASSES, to_data_uri

    pictures = next(iter(statistics.values())).pictures
    largest = {split: max(int(found.classes.max()), 1) for split, found in statistics.items()}
    classes = [
        {
            "name": name,
            "counts": {split: int(found.classes[label]) for split, found in statistics.items()},
            "shares": {split: found.classes[label] / largest[split] for split, found in statistics.items()},
            "images": [to_data_uri(image) for image in pictures.get(label, ())],
        }
        for label, name in enumerate(data.names)
    ]
    drawn = draw_pixels({split: found.pixels for split, found in statistics.items()})
    return DataPart(statistics, classes, drawn, min(len(data.names), PICTURED_CLASSES))


def _rows(names: list[str], matrix: np.ndarray) -> list[dict[str, Any]]:
    """Returns the matrix's rows: correct cells coloured by their share, mistakes relative to the most frequent one."""
    most = max((matrix - np.diag(np.diag(matrix))).max(), 1)
    rows = []
    for label, counts in enumerate(matrix):
        total = max(counts.sum(), 1)
        cells = []
        for other, count in enumerate(counts):
            share = count / total if other == label else count / most
            cells.append((int(count), round(float(share), 3), other == label))
        rows.append({"name": names[label], "cells": cells})
    return rows
