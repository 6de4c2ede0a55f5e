"""Predictions of a comparison's models: examples in another order, and metrics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.artifacts import example, write_records
from tfx_estimator.data.features import IMAGE, LABEL
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.experiments.compare.answers import Answers, Model, declared_metrics, measure, measure_all
from tfx_estimator.pipeline.experiments.compare.candidates import Candidate, find_candidates
from tfx_estimator.pipeline.experiments.compare.judge import _paired
from tfx_estimator.pipeline.report.artifacts import Output
from tfx_estimator.pipeline.report.examples import open_data

NAMES = ["zero", "one"]
# (pixel, label); two have the same image.
EXAMPLES = [(3, 0), (7, 1), (3, 1), (9, 0), (9, 0)]


def answered(folder: Path, examples: Sequence[tuple[int, int]], names: Sequence[str] = NAMES) -> tuple:
    """Returns a model and its predictions, which identify the pixel."""
    split = folder / "Split-eval"
    split.mkdir(parents=True)
    write_records(split / "data", (example(**{IMAGE: bytes([pixel]), LABEL: label}) for pixel, label in examples))
    properties = {
        "image_shape": "[1, 1, 1]",
        "label_names": json.dumps(list(names)),
        "split_names": '["eval"]',
        "num_examples_eval": len(examples),
    }
    outputs = {("TfdsExampleGen", "examples"): Output(str(folder), properties)}
    labels = np.array([label for _, label in examples])
    probabilities = np.array([[pixel / 10, 1 - pixel / 10] for pixel, _ in examples])
    answers = Answers(labels, probabilities, "probabilities", 0, 0)
    return Model(Candidate(folder.name, folder.name), outputs, "eval", True), answers


def paired(*had: tuple) -> list:
    return _paired(had, open_data(had[0][0].outputs))


def test_predictions_are_sorted_like_those_of_the_first_model(tmp_path):
    first = answered(tmp_path / "first", EXAMPLES)
    found = paired(first, answered(tmp_path / "second", [EXAMPLES[index] for index in (4, 2, 0, 3, 1)]))
    for each in found:
        assert each.labels.tolist() == [label for _, label in EXAMPLES]
        assert each.probabilities[:, 0].tolist() == [pixel / 10 for pixel, _ in EXAMPLES]


@pytest.mark.parametrize(
    ("others", "names"),
    [(EXAMPLES[:4], NAMES), ([*EXAMPLES[:4], (9, 1)], NAMES), (EXAMPLES, ["one", "zero"])],
)
def test_other_examples_or_classes_are_refused(tmp_path, others, names):
    with pytest.raises(DeclarationError, match="not evaluated on the same examples"):
        paired(answered(tmp_path / "first", EXAMPLES), answered(tmp_path / "second", others, names))


def test_the_metrics_of_each_candidate_are_measured_for_all(tmp_path):
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
    # A metric that needs other features than the scores is left to the Evaluator.
    assert found == [{"name": "AUC"}, {"name": "Precision"}, {"name": "Precision", "binarize": (3,)}]


def test_measured_metrics_are_right():
    labels = np.array([0, 1, 2, 2, 1, 0])
    scores = np.array([[6, 3, 1], [5, 4, 1], [1, 2, 7], [4, 5, 1], [1, 8, 1], [2, 3, 5]], np.float32) / 10
    metrics = [
        {"name": "SparseTopKCategoricalAccuracy", "options": {"k": 2, "name": "top_2"}},
        {"name": "Precision", "binarize": ["b"]},
    ]
    found = measure(metrics, labels, scores, ["a", "b", "c"])
    # The label is among the two highest scores in 4 of 6; `b` has more than half once, correctly.
    assert found == {"top_2": pytest.approx(4 / 6), "classId:1/precision": 1.0}
    two = measure([{"name": "Precision"}], np.array([0, 1, 1]), 1 - scores[:3, :2], ["a", "b"], of_two=True)
    assert two == {"precision": pytest.approx(2 / 3)}


@pytest.mark.long
def test_a_metric_that_fails_does_not_prevent_the_others():
    labels, scores = np.array([0, 1, 2]), np.eye(3, dtype=np.float32)
    fits, not_this = {"name": "Precision", "binarize": ["b"]}, {"name": "Precision", "binarize": ["z"]}
    found, notes = measure_all([not_this, fits], labels, scores, ["a", "b", "c"])
    assert found == {"classId:1/precision": 1.0}
    assert len(notes) == 1
    assert notes[0].startswith("The metric Precision was not measured: ")
