"""Declared metrics and slices, measured by TFMA on the digits and compared with scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import precision_score, recall_score, roc_auc_score, top_k_accuracy_score

from tests.components.evaluator.test_executor import CLASSES, export, logits_fn, run_evaluator
from tests.components.trainer.conftest import rows_of, tf_estimator, write_inputs
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.evaluator import EvaluatorSection
from tfx_estimator.pipeline.config.task import Task
from tfx_estimator.pipeline.run.results import _read_evaluation
from tfx_estimator.pipeline.run.summary import Summary
from tfx_estimator.testing import artifact, export_and_serve

__all__ = ["export", "tf_estimator"]

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore::DeprecationWarning")]

EXAMPLES = 90
NAMES = tuple(f"digit {number}" for number in range(CLASSES))
METRICS = [
    {"name": "AUC", "aggregate": "macro", "options": {"num_thresholds": 500}, "threshold": {"lower": 0.5}},
    {"name": "AUC", "options": {"name": "pooled", "num_thresholds": 500}, "change_threshold": {"absolute": -0.5}},
    {
        "name": "Precision",
        "binarize": "all",
        # Each class meets it, but not in each of its slices.
        "threshold": {"lower": 0.05, "upper": 1.0},
    },
    {"name": "Recall", "binarize": ["digit 3", 8], "threshold": {"lower": 1.5}, "slices": ["overall"]},
    {"name": "SparseTopKCategoricalAccuracy", "options": {"k": 2}},
    {"name": "ExampleCount", "threshold": {"lower": 3}, "slices": ["ink", {"label": "digit 5", "ink": "none"}]},
    {"name": "RootMeanSquaredError"},
    # The baseline is a copy of the model, so nothing changes.
    *(
        {"name": metric, "options": {"name": name}, "change_threshold": change}
        for name, metric, change in (
            ("higher", "AUC", {"absolute": 0.01}),
            ("higher_by_parts", "AUC", {"relative": 0.1}),
            ("not_lower_by_parts", "AUC", {"relative": -0.1}),
            ("lower", "RootMeanSquaredError", {"absolute": -0.01}),
            ("lower_by_parts", "RootMeanSquaredError", {"relative": -0.1}),
            ("not_higher", "RootMeanSquaredError", {"absolute": 0.01}),
            ("not_lower", "RootMeanSquaredError", {"absolute": -0.01, "direction": "higher_is_better"}),
            ("higher_as_said", "RootMeanSquaredError", {"absolute": 0.01, "direction": "higher_is_better"}),
        )
    ),
    {"name": "Mean", "options": {"feature_key_path": ["features", "label"]}},
    # No slice uses it.
    {"name": "Mean", "options": {"feature_key_path": ["features", "shade"]}},
]
# Of each example, by the rest of its label; of some there are none, and of some one is there twice.
WORDS = ("", "round", "round open open")


def preprocessing_fn(inputs):
    pixels = tf.reshape(tf.io.decode_raw(inputs["image"], tf.uint8), [-1, 784])
    shade = tf.reduce_mean(tf.cast(pixels, tf.float32), 1)
    ink = tf.where(shade > 60, "much", "little")
    words = tf.strings.split(tf.gather(list(WORDS), inputs["label"] % len(WORDS)))
    return {
        "image": tf.cast(pixels, tf.float32),
        "label": inputs["label"],
        "ink": ink,
        "shade": shade,
        "words": words,
        "numbers": tf.cast(tf.strings.length(words), tf.int64).to_sparse(),
        "column": tf.reshape(inputs["label"] % 2, [-1, 1]),
        "pair": tf.stack([inputs["label"], inputs["label"] + 1], 1),
        "places": tf.sparse.expand_dims(words.to_sparse(), -1),
    }


@pytest.fixture(scope="module")
def measured(digits, export, tmp_path_factory):
    """One evaluation of a model with logits against a copy as its baseline; and the inputs of scikit-learn."""
    home = tmp_path_factory.mktemp("measured")
    model = export(logits_fn)
    rows = rows_of(digits["examples"][0].uri)[:EXAMPLES]
    labels = np.array([row["label"] for row in rows])
    pixels = [np.frombuffer(row["image"], np.uint8) for row in rows]
    shade = np.array([each.mean() for each in pixels])
    pairs = list(zip(pixels, labels))
    inputs = write_inputs(home, {"train": pairs[:1], "eval": pairs}, preprocessing_fn)
    # A copy, since a model is never its own baseline.
    inputs |= {"model": [model], "baseline_model": [artifact("Model", model.uri)]}
    scores = tf.nn.softmax(export_and_serve(f"{model.uri}/Format-Serving", rows)["raw"]).numpy()
    truth = {"labels": labels, "ink": np.where(shade > 60, "much", "little"), "shade": shade, "scores": scores}
    slices = [["label", "ink"], {"label": "digit 5"}]
    _, blessed, uri = _evaluate(inputs, home / "out", slices, METRICS)
    assert not blessed
    return {"uri": uri, "inputs": inputs, **truth}


def _evaluate(inputs, out, slices, metrics):
    return run_evaluator(inputs, out, EvaluatorSection(slices=slices, metrics=metrics), Task("classes", "label", NAMES))


@pytest.fixture(scope="module")
def results(measured):
    """The evaluation as in a run's summary."""
    return _summary(measured["uri"])


def _summary(uri):
    summary = Summary("own.yaml", label_names=NAMES)
    _read_evaluation(summary, uri)
    return summary


def test_metrics_are_those_of_scikit_learn(measured, results):
    labels, scores = measured["labels"], measured["scores"]
    one_hot = np.eye(CLASSES)[labels]
    found = results.metrics
    assert found["auc"] == pytest.approx(roc_auc_score(one_hot, scores, average="macro"), abs=5e-3)
    assert found["pooled"] == pytest.approx(roc_auc_score(one_hot, scores, average="micro"), abs=5e-3)
    # TFMA decides for a class above one half.
    decided = scores > 0.5
    precision = precision_score(one_hot, decided, average=None, zero_division=0)
    recall = recall_score(one_hot, decided, average=None)
    for label in range(CLASSES):
        assert found[f"classId:{label}/precision"] == pytest.approx(precision[label], abs=1e-6)
    assert {name for name in found if name.endswith("/recall")} == {"classId:3/recall", "classId:8/recall"}
    for label in (3, 8):
        assert found[f"classId:{label}/recall"] == pytest.approx(recall[label], abs=1e-6)
    two = top_k_accuracy_score(labels, scores, k=2, labels=range(CLASSES))
    assert found["sparse_top_k_categorical_accuracy"] == pytest.approx(two, abs=1e-6)
    # Averaged over the classes; computed from the label numbers it would be about 5.
    errors = np.sqrt(((one_hot - scores) ** 2).mean(0)).mean()
    assert found["root_mean_squared_error"] == pytest.approx(errors, abs=1e-4)
    assert results.accuracy == pytest.approx((scores.argmax(1) == labels).mean(), abs=1e-6)
    assert results.loss == pytest.approx(-np.log(scores[np.arange(len(labels)), labels]).mean(), abs=1e-4)
    assert found["mean_features.label"] == pytest.approx(labels.mean(), rel=1e-6)
    assert found["mean_features.shade"] == pytest.approx(measured["shade"].mean(), rel=1e-5)
    # Its own baseline.
    assert found["pooled_diff"] == results.accuracy_change() == 0


def test_slices_may_use_features_of_the_preprocessing_fn_and_be_crossed(measured, results):
    labels, ink = measured["labels"], measured["ink"]
    right = measured["scores"].argmax(1) == labels
    crossed = {}
    for label, much, correct in zip(labels, ink, right):
        crossed.setdefault(f"{much} x {label}", []).append(correct)
    assert results.slices["ink x label"].keys() == crossed.keys()
    for name, values in crossed.items():
        accuracy, count = results.slices["ink x label"][name]
        assert (accuracy, count) == (pytest.approx(np.mean(values), abs=1e-6), len(values))
        assert results.slice_metrics["ink x label"][name]["example_count"] == len(values)
    assert {name: count for name, (_, count) in results.slices["ink"].items()} == {
        "much": (ink == "much").sum(),
        "little": (ink == "little").sum(),
    }
    assert {name: count for name, (_, count) in results.slices["label"].items()} == {"5": (labels == 5).sum()}
    assert "classId:4/precision" in results.slice_metrics["ink"]["much"]


@pytest.fixture(scope="module")
def sliced(measured, tmp_path_factory):
    """An evaluation with a change threshold in slices, and slices by lists of values."""
    metric = {"name": "SparseTopKCategoricalAccuracy", "options": {"k": 2}, "change_threshold": {"absolute": 0.01}}
    metric["slices"] = ["ink", ["label", "ink"]]
    slices = ["words", ["words", "ink"], "numbers", "column"]
    _, blessed, uri = _evaluate(measured["inputs"], tmp_path_factory.mktemp("sliced"), slices, [metric])
    return _summary(uri), blessed


def test_an_example_is_in_the_slice_of_each_of_its_values_but_not_of_padding(measured, sliced):
    labels, ink = measured["labels"], measured["ink"]
    right = measured["scores"].argmax(1) == labels
    expected = {name: {} for name in ("words", "ink x words", "numbers", "column")}
    for label, much, correct in zip(labels, ink, right):
        words = set(WORDS[label % len(WORDS)].split())
        values = {
            "words": words,
            "ink x words": {f"{much} x {word}" for word in words},
            "numbers": {str(len(word)) for word in words},
            "column": {str(label % 2)},
        }
        for name, members in values.items():
            for value in members:
                expected[name].setdefault(value, []).append(correct)
    assert expected["words"].keys() == {"round", "open"}
    assert expected["numbers"].keys() == {"5", "4"}
    for name, slices in expected.items():
        found = {value: (pytest.approx(np.mean(each), abs=1e-6), len(each)) for value, each in slices.items()}
        assert sliced[0].slices[name] == found


def test_a_change_threshold_in_slices_is_missed_in_each_of_them(measured, sliced):
    summary, blessed = sliced
    crossed = {(f"ink {much}", f"digit {label}") for much, label in zip(measured["ink"], measured["labels"])}
    places = [*{much for much, _ in crossed}, *(f"{much} x label {label}" for much, label in crossed)]
    end = "changed by +0.0000 against the latest blessed model, allowed is +0.0100"
    # Each line names its slice, and there is no other reason.
    assert sorted(summary.reasons) == sorted(f"sparse_top_k_categorical_accuracy of {place} {end}" for place in places)
    assert not blessed


def test_each_missed_threshold_is_reported_in_one_line_with_its_value(results):
    missed = [f"recall of class digit {label} {results.metrics[f'classId:{label}/recall']:.4f}" for label in (3, 8)]
    none = "no example is of ink none x label digit 5, which has a threshold"
    own = [each for each in results.reasons if "latest blessed" not in each]
    assert sorted(own) == sorted([*(f"{each} is below 1.5000" for each in missed), none])


def test_a_change_threshold_is_missed_by_the_same_model(results):
    expected = {
        "higher": "+0.0100",
        "higher_by_parts": "+10.00 %",
        "lower": "-0.0100",
        "lower_by_parts": "-10.00 %",
        "higher_as_said": "+0.0100",
    }
    assert [each for each in results.reasons if "latest blessed" in each] == [
        f"{name} changed by +0.0000 against the latest blessed model, allowed is {least}"
        for name, least in expected.items()
    ]


def test_a_missing_feature_is_reported_with_the_existing_ones(measured, tmp_path):
    with pytest.raises(UserCodeError, match=r"no feature `inc`.* have .*ink, .*label, .*shade") as caught:
        _evaluate(measured["inputs"], tmp_path, [["label", "inc"]], [])
    assert caught.value.todo == "did you mean `ink`?"
    assert not (tmp_path / "evaluation").exists()


MEAN_OF_PAIR, MEAN_OF_NUMBERS, MEAN_OF_SHADE, MEAN_OF_INK = (
    {"name": "Mean", "options": {"feature_key_path": ["features", name]}}
    for name in ("pair", "numbers", "shade", "ink")
)


@pytest.mark.parametrize(
    ("slices", "metrics", "message"),
    [
        (["shade"], [MEAN_OF_SHADE], "evaluator.slices: the feature `shade` is float32"),
        (["pair"], [], r"evaluator.slices: the feature `pair`, which has 2 values per example, of shape \[2\]"),
        (["places"], [], "evaluator.slices: the feature `places`, which has tensors of any size"),
        ([], [MEAN_OF_INK], "evaluator.metrics: the feature `ink` is string"),
        ([], [{"name": "AUC", "threshold": {"lower": 0.5}, "slices": ["shade"]}], "the feature `shade` is float32"),
        ([], [MEAN_OF_PAIR], "evaluator.metrics: Mean of the feature `pair`, which has 2 values"),
        ([], [MEAN_OF_NUMBERS], "evaluator.metrics: Mean of the feature `numbers`, which has any number of values"),
    ],
)
def test_a_feature_of_many_values_or_of_fractions_is_refused_before_the_evaluation(
    measured, tmp_path, slices, metrics, message
):
    with pytest.raises(UserCodeError, match=message):
        _evaluate(measured["inputs"], tmp_path, slices, metrics)
    assert not (tmp_path / "evaluation").exists()
