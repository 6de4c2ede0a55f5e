"""The declared metrics of a comparison: TFMA's, of what the models answered."""

from __future__ import annotations

import numpy as np
import pytest

from tfx_estimator.pipeline.experiments.compare.answers import declared_metrics, measure, measure_all
from tfx_estimator.pipeline.experiments.compare.candidates import find_candidates

pytestmark = pytest.mark.unit


def test_the_metrics_of_any_candidate_are_measured_of_all(tmp_path):
    sources, mean = [], "{name: Mean, options: {feature_key_path: [features, label]}}"
    for name, metrics in (
        ("one", f"[AUC, {mean}, {{name: Precision, threshold: {{lower: 0.1}}}}]"),
        ("two", "[{name: Precision, binarize: [3]}, AUC]"),
    ):
        file = tmp_path / f"{name}.yaml"
        file.write_text(
            f"name: {name}\ndata: {{dataset: digits, splits: {{train: 'train[:80%]', eval: 'train[80%:]'}}}}\n"
            f"trainer: {{model: mnist_cnn, train_steps: 5}}\nevaluator: {{metrics: {metrics}}}\n"
        )
        sources.append(str(file))
    found = [dict(each) for each in declared_metrics(find_candidates(sources, [], []))]
    # One that needs another feature than the scores is left to the Evaluator.
    assert found == [{"name": "AUC"}, {"name": "Precision"}, {"name": "Precision", "binarize": (3,)}]


def test_what_is_measured_is_right():
    labels = np.array([0, 1, 2, 2, 1, 0])
    scores = np.array([[6, 3, 1], [5, 4, 1], [1, 2, 7], [4, 5, 1], [1, 8, 1], [2, 3, 5]], np.float32) / 10
    metrics = [
        {"name": "SparseTopKCategoricalAccuracy", "options": {"k": 2, "name": "top_2"}},
        {"name": "Precision", "binarize": ["b"]},
    ]
    found = measure(metrics, labels, scores, ["a", "b", "c"])
    # The second of the highest two in 4 of 6; more than half for `b` once, and rightly.
    assert found == {"top_2": pytest.approx(4 / 6), "classId:1/precision": 1.0}
    two = measure([{"name": "Precision"}], np.array([0, 1, 1]), 1 - scores[:3, :2], ["a", "b"], of_two=True)
    assert two == {"precision": pytest.approx(2 / 3)}


def test_a_metric_that_does_not_fit_costs_no_other():
    labels, scores = np.array([0, 1, 2]), np.eye(3, dtype=np.float32)
    fits, not_this = {"name": "Precision", "binarize": ["b"]}, {"name": "Precision", "binarize": ["z"]}
    found, notes = measure_all([not_this, fits], labels, scores, ["a", "b", "c"])
    assert found == {"classId:1/precision": 1.0}
    assert len(notes) == 1
    assert notes[0].startswith("The metric Precision was not measured: ")
