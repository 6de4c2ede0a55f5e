"""A report's evaluation: probabilities from served outputs, and scores compared with values computed by hand."""

from __future__ import annotations

import base64
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tfx_estimator.components.served_outputs import Scores
from tfx_estimator.pipeline.report.artifacts import Output
from tfx_estimator.pipeline.report.evaluation import calibrate, confusion, evaluate, most_confused, score_classes
from tfx_estimator.pipeline.report.examples import DataSet, open_data, to_data_uri, to_image
from tfx_estimator.pipeline.report.page import LeftOutError, Missing, attempt
from tfx_estimator.pipeline.report.predictions import Predictions, to_probabilities


def probabilities(got: list, classes: int, scores: Scores) -> tuple[list, str]:
    found, note = to_probabilities(np.array(got, np.float32), classes, scores)
    return np.round(found, 4).tolist(), note


def test_probabilities_stay_as_they_are():
    assert probabilities([[0.25, 0.75]], 2, Scores("scores")) == ([[0.25, 0.75]], "")


def test_logits_and_scores_that_are_no_distribution_pass_through_a_softmax():
    third = round(1 / 3, 4)
    for key, from_logits, got in (("logits", True, [[0, 0, 0]]), ("points", False, [[7, 7, 7]])):
        found, note = probabilities(got, 3, Scores(key, from_logits))
        assert np.allclose(found, [[third] * 3], atol=1e-4)
        assert note == f"The probabilities are a softmax of the served {key}."


def test_one_score_for_two_classes_is_that_of_the_second():
    assert probabilities([[0.25]], 2, Scores("logistic", of_two=True))[0] == [[0.75, 0.25]]
    assert probabilities([0.0], 2, Scores("logits", from_logits=True, of_two=True))[0] == [[0.5, 0.5]]


@pytest.mark.parametrize(("got", "reason"), [([[0.5, 0.5]], "not a score for each of the 3"), ([[np.nan] * 3], "NaN")])
def test_outputs_without_a_score_for_each_class_are_left_out_with_a_reason(got, reason):
    left = attempt(probabilities, got, 3, Scores("scores"))
    assert isinstance(left, Missing)
    assert reason in left.why
    # Values computed from it are left out for the same reason.
    assert attempt(len, left) is left


def test_an_image_of_another_size_is_left_out():
    data = DataSet("own", (2, 2, 1), ["a"], {}, {})
    assert to_image(data, bytes(range(4))).tolist() == [[[0], [1]], [[2], [3]]]
    with pytest.raises(LeftOutError, match="5 bytes, where 4"):
        to_image(data, bytes(5))


def test_examples_that_are_partly_deleted_are_left_out_with_a_reason(tmp_path):
    properties = {"image_shape": "[2, 2, 1]", "label_names": '["a"]', "split_names": '["train", "eval", "none"]'}
    counts = {"num_examples_train": 3, "num_examples_eval": 1, "num_examples_none": 0}
    outputs = {("TfdsExampleGen", "examples"): Output(str(tmp_path / "examples"), {**properties, **counts})}
    for split in ("train", "eval"):
        (tmp_path / "examples" / f"Split-{split}").mkdir(parents=True)
        (tmp_path / "examples" / f"Split-{split}" / "data.gz").touch()
    assert list(open_data(outputs).files) == ["train", "eval", "none"]
    shutil.rmtree(tmp_path / "examples" / "Split-eval")
    with pytest.raises(LeftOutError, match="The examples of the split eval have been deleted from "):
        open_data(outputs)
    shutil.rmtree(tmp_path / "examples")
    with pytest.raises(LeftOutError, match="The examples of TfdsExampleGen have been deleted"):
        open_data(outputs)


def test_a_matrix_of_many_classes_is_drawn_and_its_worst_pairs_are_listed():
    labels = np.repeat(np.arange(30), 3)
    guesses = np.where(labels == 7, 8, labels)
    names = [f"class {number}" for number in range(30)]
    found = evaluate(
        DataSet("own", (1, 1, 1), names, {}, {}), Predictions(labels, np.eye(30, dtype=np.float32)[guesses], [], "p")
    )
    assert found.matrix == []
    assert found.drawing.startswith("<svg aria-hidden")
    assert found.pairs == [("class 7", "class 8", 3, 1.0)]
    assert (found.mistakes, found.accuracy) == (3, 87 / 90)


def test_large_images_are_shown_smaller_and_small_ones_pixel_by_pixel():
    noise = np.random.default_rng(0).integers(0, 256, (500, 250, 3), np.uint8)
    head, _, body = to_data_uri(noise).partition(",")
    assert head == "data:image/jpeg;base64"
    assert tf.io.decode_jpeg(base64.b64decode(body)).shape == (128, 64, 3)
    # A page has about 180 of them.
    assert 180 * len(body) < 3_000_000
    assert to_data_uri(noise[:64, :64]).startswith("data:image/png")
    # Of two channels, the first is shown.
    assert to_data_uri(noise[:8, :8, :2]) == to_data_uri(noise[:8, :8, :1])


LABELS = np.array([0, 0, 0, 1, 1, 3])
PREDICTED = np.array([0, 0, 1, 1, 0, 1])


def test_a_confusion_matrix_counts_true_classes_in_rows():
    matrix = confusion(LABELS, PREDICTED, 4)
    assert matrix.tolist() == [[2, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]]
    assert most_confused(matrix) == [(0, 1, 1), (1, 0, 1), (3, 1, 1)]
    assert most_confused(matrix, most=1) == [(0, 1, 1)]


def test_each_class_is_scored_and_undefined_scores_are_none():
    first, second, third, fourth = score_classes(confusion(LABELS, PREDICTED, 4))
    assert (first.precision, first.recall, first.f1, first.count) == (2 / 3, 2 / 3, 2 / 3, 3)
    assert (second.precision, second.recall, second.count, second.predicted) == (1 / 3, 1 / 2, 2, 3)
    assert second.f1 == pytest.approx(2 / (3 + 2))
    # Neither present nor predicted; present, but never predicted.
    assert (third.precision, third.recall, third.f1) == (None, None, None)
    assert (fourth.precision, fourth.recall, fourth.f1) == (None, 0, 0)


def test_calibration_error_is_the_distance_of_confidence_and_accuracy():
    sure = np.array([0.95, 0.95, 0.85, 0.65, 0.6], np.float32)
    probabilities = np.stack([sure, 1 - sure], axis=1)
    found = calibrate(np.array([0, 1, 0, 0, 1]), probabilities)
    # An edge belongs to the bin below it: float32's 0.6, slightly above 0.6, stays in the sixth.
    assert found.counts.sum() == 5
    assert found.counts[[8, 9]].tolist() == [1, 2]
    by_hand = (abs(1 + 0 - 1.9) + abs(1 - 0.85) + abs(1 + 0 - 1.25)) / 5
    assert found.ece == pytest.approx(by_hand, abs=1e-6)
    assert found.accuracy[-1] == 0.5


def test_a_perfect_model_is_calibrated():
    found = calibrate(np.array([0, 1]), np.eye(2, dtype=np.float32))
    assert (found.ece, found.counts[-1]) == (0, 2)
