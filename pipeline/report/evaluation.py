"""The evaluation of a run as a report shows it: classes, confusion, calibration, mistakes; and what the data are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tfx_estimator.pipeline.report.examples import PICTURED_CLASSES, DataSet, Statistics, to_data_uri
from tfx_estimator.pipeline.report.plots import draw_matrix, draw_pixels, draw_reliability
from tfx_estimator.pipeline.report.predictions import Predictions, losses
from tfx_estimator.pipeline.report.scores import (
    Calibration,
    ClassScore,
    calibrate,
    confusion,
    most_confused,
    score_classes,
)

# A matrix of more classes is drawn without numbers.
_MOST_NUMBERED = 20


@dataclass(frozen=True)
class Evaluation:
    """How the model does on the evaluation examples."""

    examples: int  # how many were predicted
    mistakes: int  # how many were wrong
    accuracy: float  # 0 to 1
    loss: float
    output: str
    notes: list[str]  # what to know; a sentence each
    scores: list[ClassScore]  # of each class
    # Rows of a confusion matrix: `name` and `cells` of (count, share for its colour, is it right).
    matrix: list[dict[str, Any]]
    drawing: str  # the matrix drawn, where it has no rows
    pairs: list[tuple[str, str, int, float]]  # (true class, predicted class, count, share of the true class)
    calibration: Calibration
    reliability: str
    worst: list[dict[str, Any]]  # mistakes: `image`, `truth`, `predicted`, and numbers


def evaluate(data: DataSet, predictions: Predictions) -> Evaluation:
    """Scores predictions."""
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
                "image": to_data_uri(each.image),
                "truth": names[each.label],
                "predicted": names[each.predicted],
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
    """What a run's data are like."""

    splits: dict[str, Statistics]
    classes: list[dict[str, Any]]  # `name`, `counts` by split, `shares` of the largest class by split, `images`
    pixels: str
    pictured: int  # how many classes have pictures


def describe(data: DataSet, statistics: dict[str, Statistics]) -> DataPart:
    """Describes the data by the statistics of each split; pictures are of the first."""
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
    """Colours what is right by its share, and mistakes by their share of the most frequent one."""
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
