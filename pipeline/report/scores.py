"""What a classifier's probabilities are worth: confusion, the classes one by one, calibration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BINS = 10


@dataclass(frozen=True)
class ClassScore:
    """How well one class is told from the others."""

    label: int
    precision: float | None  # of the examples predicted as this class, the share that is of it; None of none
    recall: float | None  # of the examples of this class, the share predicted as it; None of none
    f1: float | None  # harmonic mean of both; None where both are
    count: int  # examples of this class
    predicted: int  # examples predicted as this class


@dataclass(frozen=True)
class Calibration:
    """Does the model know how sure it may be.

    Equal bins of the probability of the predicted class, as in Guo et al., On Calibration of Modern Neural Networks,
    2017, https://arxiv.org/abs/1706.04599.
    """

    confidence: np.ndarray  # mean probability of each bin that is not empty
    accuracy: np.ndarray  # share of right predictions in each of those
    counts: np.ndarray  # examples in each of all the bins; int64 [BINS]
    ece: float  # expected calibration error: the mean distance between both, weighted by examples; 0 to 1


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
    """Returns which class was taken for which other one most often, and how often, the most frequent first."""
    wrong = matrix - np.diag(np.diag(matrix))
    order = np.argsort(-wrong, axis=None, kind="stable")[:most]
    pairs = [(int(index) // len(matrix), int(index) % len(matrix)) for index in order]
    return [(label, other, int(wrong[label, other])) for label, other in pairs if wrong[label, other]]


def calibrate(labels: np.ndarray, probabilities: np.ndarray) -> Calibration:
    """Compares how sure a model is with how often it is right.

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
