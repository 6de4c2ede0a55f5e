"""Compares declarations that are trained under several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfx_estimator.pipeline.experiments.compare.results import ClassDifference, Pair, SeedTest
from tfx_estimator.pipeline.experiments.compare.statistics import Interval, holm, kappa, over_seeds

# Made-up examples after Agresti and Coull for a share, and after Bonett and Price for a difference of two.
_ADDED_TO_SHARE, _ADDED_TO_DIFFERENCE = (0, 0, 1, 1), (-1, 1)


def score_seeds(
    labels: np.ndarray, predicted: Sequence[np.ndarray], entropies: np.ndarray
) -> tuple[Interval, Interval]:
    """Returns accuracy and mean loss, over the seeds and over the examples.

    Args:
        labels: The true classes; int64 [examples].
        predicted: The predicted classes of each training; int64 [examples].
        entropies: Cross-entropy; float64 [trainings, examples].
    """
    accuracy, _ = over_seeds(_right(labels, predicted), None, _ADDED_TO_SHARE)
    loss, _ = over_seeds(entropies)
    return Interval(accuracy.value, max(accuracy.low, 0.0), min(accuracy.high, 1.0)), loss


def pair_up_seeds(
    names: Sequence[str],
    labels: np.ndarray,
    predicted: Sequence[Sequence[np.ndarray]],
    entropies: Sequence[np.ndarray],
    classes: Sequence[str],
) -> list[Pair]:
    """Compares each other candidate with the first, like `pair_up`, for several trainings each."""
    right = [_right(labels, each) for each in predicted]
    accuracies = [over_seeds(each, right[0], _ADDED_TO_DIFFERENCE) for each in right[1:]]
    losses = [over_seeds(each, entropies[0]) for each in entropies[1:]]
    # Accuracy and loss are separate tests.
    corrected = holm([p for _, p in (*accuracies, *losses)])
    pairs = []
    for index, (name, (accuracy, p), (loss, loss_p)) in enumerate(zip(names[1:], accuracies, losses), 1):
        both = [(first, second) for first in predicted[0] for second in predicted[index]]
        pairs.append(
            Pair(
                name=name,
                accuracy=_within_one(accuracy),
                loss=loss,
                p=corrected[index - 1],
                agreement=float(np.mean([(first == second).mean() for first, second in both])),
                kappa=float(np.mean([kappa(first, second) for first, second in both])),
                classes=_by_class(labels, right[0], right[index], classes),
                seeds=SeedTest(p, loss_p, corrected[len(accuracies) + index - 1]),
            )
        )
    return pairs


def mean_facts(facts: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Returns the mean of each fact that all have."""
    names = [name for name in facts[0] if all(name in each for each in facts)]
    return {name: float(np.mean([each[name] for each in facts])) for name in names}


def _right(labels: np.ndarray, predicted: Sequence[np.ndarray]) -> np.ndarray:
    return np.stack([each == labels for each in predicted]).astype(np.float64)


def _within_one(found: Interval) -> Interval:
    return Interval(found.value, max(found.low, -1.0), min(found.high, 1.0))


def _by_class(labels: np.ndarray, base: np.ndarray, other: np.ndarray, names: Sequence[str]) -> list[ClassDifference]:
    found = []
    for label, name in enumerate(names):
        chosen = labels == label
        if count := int(np.count_nonzero(chosen)):
            difference, _ = over_seeds(other[:, chosen], base[:, chosen], _ADDED_TO_DIFFERENCE)
            shares = float(base[:, chosen].mean()), float(other[:, chosen].mean())
            found.append(ClassDifference(name, count, *shares, _within_one(difference)))
    return found
