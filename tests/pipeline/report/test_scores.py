"""Confusion, classes and calibration, against numbers done by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tfx_estimator.pipeline.report.evaluation import calibrate, confusion, most_confused, score_classes

pytestmark = pytest.mark.unit

LABELS = np.array([0, 0, 0, 1, 1, 3])
PREDICTED = np.array([0, 0, 1, 1, 0, 1])


def test_a_confusion_matrix_counts_true_classes_in_rows():
    matrix = confusion(LABELS, PREDICTED, 4)
    assert matrix.tolist() == [[2, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]]
    assert most_confused(matrix) == [(0, 1, 1), (1, 0, 1), (3, 1, 1)]
    assert most_confused(matrix, most=1) == [(0, 1, 1)]


def test_each_class_is_scored_and_what_cannot_be_is_none():
    first, second, third, fourth = score_classes(confusion(LABELS, PREDICTED, 4))
    assert (first.precision, first.recall, first.f1, first.count) == (2 / 3, 2 / 3, 2 / 3, 3)
    assert (second.precision, second.recall, second.count, second.predicted) == (1 / 3, 1 / 2, 2, 3)
    assert second.f1 == pytest.approx(2 / (3 + 2))
    # Neither there nor predicted; there, and never predicted.
    assert (third.precision, third.recall, third.f1) == (None, None, None)
    assert (fourth.precision, fourth.recall, fourth.f1) == (None, 0, 0)


def test_calibration_is_the_distance_between_how_sure_and_how_often_right():
    sure = np.array([0.95, 0.95, 0.85, 0.65, 0.6], np.float32)
    probabilities = np.stack([sure, 1 - sure], axis=1)
    found = calibrate(np.array([0, 1, 0, 0, 1]), probabilities)
    # An edge belongs to the bin below it; that float32 holds 0.6 a little above does not move it out of the sixth.
    assert found.counts.sum() == 5
    assert found.counts[[8, 9]].tolist() == [1, 2]
    by_hand = (abs(1 + 0 - 1.9) + abs(1 - 0.85) + abs(1 + 0 - 1.25)) / 5
    assert found.ece == pytest.approx(by_hand, abs=1e-6)
    assert found.accuracy[-1] == 0.5


def test_a_perfect_model_is_calibrated():
    found = calibrate(np.array([0, 1]), np.eye(2, dtype=np.float32))
    assert (found.ece, found.counts[-1]) == (0, 2)
