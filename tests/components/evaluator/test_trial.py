"""Dry runs of declared metrics and of the Evaluator's call of a served signature, on synthetic data."""

from __future__ import annotations

import contextlib
import re

import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma

from tests.artifacts import example
from tfx_estimator.components.evaluator.eval_config import eval_config
from tfx_estimator.components.evaluator.trial import try_metrics, try_signature
from tfx_estimator.pipeline.base.errors import DeclarationError, UserCodeError
from tfx_estimator.pipeline.config.evaluator import EvaluatorSection, Metric
from tfx_estimator.pipeline.config.task import CLASSES, Task

CONFIG = tfma.EvalConfig(model_specs=[tfma.ModelSpec(signature_name="serving_default", label_key="label")])
TASK = Task(CLASSES, "label", tuple("abcd"))
SPEC = {"image": tf.io.FixedLenFeature([], tf.string)}


def scores(raw: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.reshape(tf.io.decode_raw(tf.reshape(raw, [-1]), tf.uint8), [-1, 4]), tf.float32)


SERVED = {
    "examples": (tf.TensorSpec([None], tf.string), lambda each: scores(tf.io.parse_example(each, SPEC)["image"])),
    # Named like a feature.
    "image": (tf.TensorSpec([None], tf.string), scores),
    "images": (tf.TensorSpec([None, 2, 2, 1], tf.float32), lambda each: tf.reshape(each, [-1, 4])),
    "inputs": (tf.TensorSpec([None], tf.string), lambda each: scores(tf.io.decode_base64(each))),
}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("examples", ""),
        ("image", ""),
        ("images", r"`serving_default`, which takes images: float32 \(None, 2, 2, 1\): "),
        ("inputs", r"`serving_default`, which takes inputs: string \(None,\): .*base64"),
    ],
)
def test_a_signature_that_tfma_cannot_call_is_reported(tmp_path, name, message):
    spec, function = SERVED[name]
    module = tf.Module()
    module.serve = tf.function(lambda **inputs: {"scores": function(inputs[name])}, input_signature=None)
    tf.saved_model.save(module, str(tmp_path), {"serving_default": module.serve.get_concrete_function(**{name: spec})})
    records = [example(image=bytes(range(4)), label=1)] * 3
    refused = pytest.raises(UserCodeError, match=message) if message else contextlib.nullcontext()
    with refused:
        try_signature(str(tmp_path), CONFIG, records)


def _try(*metrics):
    section = EvaluatorSection(
        metrics=[Metric(**({"name": each} if isinstance(each, str) else each)) for each in metrics]
    )
    try_metrics(eval_config(section, TASK), TASK)


OWN_NAME = {"name": "AUC", "options": {"name": "other"}}


def _held(name, **threshold):
    return {"name": name, "threshold": threshold}


LABEL = {"name": "Mean", "options": {"feature_key_path": ["features", "label"]}}


@pytest.mark.parametrize(
    "metrics",
    [
        ["AUC", {"name": "AUC", "binarize": "all"}, {"name": "AUC", "top_k": [2]}, OWN_NAME],
        [{"name": "AUC", "aggregate": "micro"}, OWN_NAME],
        [LABEL, {"name": "Mean", "options": {"feature_key_path": ["labels"]}}],
        [{"name": "Recall", "binarize": [1], "options": {"name": "sparse_categorical_accuracy"}}, "AUC"],
        # Thresholds for metrics that are always measured.
        [{"name": name, "threshold": {"lower": 0}} for name in ("ExampleCount", "SparseCategoricalAccuracy")],
        ["RootMeanSquaredError", "MeanSquaredError", "SparseTopKCategoricalAccuracy", "MultiClassConfusionMatrixPlot"],
        [
            {"name": "F1Score", "aggregate": "macro", "threshold": {"lower": 0}},
            {"name": "CalibrationPlot", "binarize": [1]},
        ],
    ],
)
def test_metrics_that_tfma_can_measure_pass(metrics):
    _try(*metrics)


@pytest.mark.parametrize(
    ("kind", "metrics"),
    [
        ("binary", ["Precision", _held("Skill", lower=0.1), _held("BinaryCrossentropy", upper=0.5)]),
        ("regression", ["MeanAbsolutePercentageError", _held("MeanAbsoluteError", upper=2.0)]),
        ("classes", ["Skill", "AUC"]),
    ],
)
def test_metrics_of_a_table_s_single_score_or_number_pass(kind, metrics):
    task = Task(kind, "tips", preprocessed=True)
    try_metrics(eval_config(EvaluatorSection(metrics=metrics), task), task)


def _metric(name, **options):
    return {"name": name, **options}


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("AUG", "did you mean `AUC`?"),
        ("CategoricalAccuracy", "did you mean `SparseCategoricalAccuracy`?"),
        (_metric("CosineSimilarity", aggregate="macro"), "it reads one-hot labels"),
        (_metric("AUC", options={"num_treshold": 9}), "unexpected keyword argument 'num_treshold'"),
        (_metric("AUC", options={"thresholds": [0.9, 0.1]}), "its thresholds are not in ascending order"),
        (_metric("ExampleCount", binarize="all"), "it covers all classes at once"),
        (_metric("CalibrationPlot", threshold={"lower": 0}), "it has a threshold, but TFMA reports no single number"),
        (_metric("Recall", aggregate="weighted_macro", threshold={"lower": 1}), "no single number under its name"),
    ],
)
def test_a_metric_that_tfma_cannot_measure_correctly_is_reported(metric, message):
    with pytest.raises(DeclarationError, match=f"(?s)evaluator.metrics: .*{re.escape(message)}"):
        _try(metric)


@pytest.mark.parametrize(
    ("metrics", "called"),
    [
        (["AUC", {"name": "AUC", "options": {"num_thresholds": 9}}], "auc"),
        ([{"name": "Recall", "binarize": [1, 2]}, {"name": "Recall", "options": {"class_id": 2}}], "recall"),
        ([LABEL, LABEL], "mean_features.label"),
        # It would replace the accuracy that decides the blessing.
        ([{"name": "AUC", "options": {"name": "sparse_categorical_accuracy"}}], "sparse_categorical_accuracy"),
    ],
)
def test_two_metrics_of_one_name_are_reported(metrics, called):
    with pytest.raises(DeclarationError, match=f"another metric is named {called}, too: add options: {{name: "):
        _try(*metrics)
