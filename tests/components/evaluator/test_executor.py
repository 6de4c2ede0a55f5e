"""Models are evaluated whatever their scores are called, against baselines that call them differently."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma
from scipy.special import softmax
from sklearn.metrics import precision_score, roc_auc_score
from tfx.components.evaluator.component import Evaluator as Theirs
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.types import channel_utils

from tests.artifacts import outputs
from tests.components.trainer.conftest import rows_of, tf_estimator  # noqa: F401
from tfx_estimator import testing
from tfx_estimator.components.evaluator import Evaluator
from tfx_estimator.components.evaluator.completion import complete
from tfx_estimator.components.evaluator.eval_config import eval_config
from tfx_estimator.components.image_schema_gen.executor import image_schema
from tfx_estimator.components.served_outputs import Scores
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.beam import BeamSection
from tfx_estimator.pipeline.config.evaluator import EvaluatorSection, Metric
from tfx_estimator.pipeline.config.task import Task
from tfx_estimator.testing import artifact

pytestmark = [pytest.mark.timeout(300)]

CLASSES = 10
TASK = Task("classes", "label")
SPEC = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def images_of(parsed):
    return tf.cast(tf.reshape(tf.io.decode_raw(parsed["image"], tf.uint8), [-1, 784]), tf.float32) / 255.0


def training_data(digits, batch: int, classes: int):
    """Batches of images and labels below `classes`."""
    files = tf.io.gfile.glob(f"{digits['examples'][0].uri}/Split-train/*")
    parsed = tf.data.TFRecordDataset(files).batch(batch).map(lambda records: tf.io.parse_example(records, SPEC))
    return parsed.map(lambda each: (images_of(each), each["label"] % classes))


def head_fn(features, labels, mode):
    head = tf.estimator.MultiClassHead(CLASSES)
    logits = tf.compat.v1.layers.dense(features["image"], CLASSES)
    trained = tf.compat.v1.trainable_variables()
    optimizer = tf.keras.optimizers.legacy.SGD(0.1)
    optimizer.iterations = tf.compat.v1.train.get_or_create_global_step()
    return head.create_estimator_spec(features, mode, logits, labels, optimizer, trained)


def v1_head_fn(features, labels, mode):
    # After TensorFlow's estimator is restored.
    from tensorflow_estimator.python.estimator.canned import head as heads

    head = heads._multi_class_head_with_softmax_cross_entropy_loss(CLASSES)
    logits = tf.compat.v1.layers.dense(features["image"], CLASSES)
    return head.create_estimator_spec(features, mode, logits, labels, tf.compat.v1.train.GradientDescentOptimizer(0.1))


def logits_fn(features, labels, mode):
    logits = tf.compat.v1.layers.dense(features["image"], CLASSES)
    return _plain(mode, labels, logits, {"raw": logits, "top": tf.argmax(logits, 1)})


def two_fn(features, labels, mode):
    logit = tf.compat.v1.layers.dense(features["image"], 1)
    both = tf.concat([tf.zeros_like(logit), logit], 1)
    return _plain(mode, labels, both, {"logistic": tf.sigmoid(logit), "features": features["image"]})


def _plain(mode, labels, logits, outputs):
    if mode == tf.estimator.ModeKeys.PREDICT:
        export = {"serving_default": tf.estimator.export.PredictOutput(outputs)}
        return tf.estimator.EstimatorSpec(mode, predictions=outputs, export_outputs=export)
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    step = tf.compat.v1.train.get_or_create_global_step()
    train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


@pytest.fixture(scope="module")
def export(digits, tmp_path_factory):
    """Trains a model_fn for a few steps and exports it; returns the model's artifact."""

    def make(model_fn, classes: int = CLASSES):
        home = tmp_path_factory.mktemp("model")

        def input_fn():
            return training_data(digits, 64, classes).map(lambda image, label: ({"image": image}, label)).repeat()

        def receiver():
            examples = tf.compat.v1.placeholder(tf.string, [None])
            image = images_of(tf.io.parse_example(examples, {"image": SPEC["image"]}))
            return tf.estimator.export.ServingInputReceiver({"image": image}, {"examples": examples})

        estimator = tf.estimator.Estimator(model_fn, str(home / "training"))
        estimator.train(input_fn, steps=60)
        return artifact("Model", estimator.export_saved_model(str(home / "exported"), receiver).decode())

    return make


def run_evaluator(inputs, out: Path, section, task=TASK) -> tuple[dict, bool, str]:
    """Runs the executor as TFX does, with the engine that a pipeline of ours gives it.

    Returns:
        The metrics by slice, whether the model is blessed, and the evaluation's URI.
    """
    component = Evaluator(
        **{name: channel_utils.as_channel(artifacts) for name, artifacts in inputs.items()},
        eval_config=eval_config(section, task),
    )
    # The chosen engine is no property, so the cache key is TFX's own.
    assert component.spec.exec_properties.keys() <= Theirs.SPEC_CLASS.PARAMETERS.keys()
    made = outputs(out, evaluation="ModelEvaluation", blessing="ModelBlessing")
    context = BaseBeamExecutor.Context(beam_pipeline_args=BeamSection().pipeline_args(), tmp_dir=str(out))
    properties = {key: value for key, value in component.exec_properties.items() if value is not None}
    executor = component.executor_spec.executor_class(context)
    executor.Do(inputs, made, properties)
    found, uri = {}, made["evaluation"][0].uri
    for key, values in tfma.load_eval_result(uri).slicing_metrics:
        found[key] = {name: value.get("doubleValue") for name, value in values[""][""].items()}
    return found, made["blessing"][0].get_int_custom_property("blessed") == 1, uri


@pytest.fixture
def evaluate(digits, tmp_path):
    """Evaluates; returns the metrics by slice and whether the declared thresholds are met."""

    def run(model, baseline=None, classes: int = CLASSES, **section):
        examples = digits["examples"][0]
        if classes < CLASSES:
            rows = [{**row, "label": row["label"] % classes} for row in rows_of(examples.uri)]
            examples = testing.examples(rows, splits=("eval",))
        inputs = {"examples": [examples], "model": [model], "schema": [artifact("Schema", image_schema(classes))]}
        inputs |= {"baseline_model": [baseline]} if baseline else {}
        return run_evaluator(inputs, tmp_path, EvaluatorSection(**section))[:2]

    return run


def scores_and_labels(model, output, examples, classes: int = CLASSES):
    rows = rows_of(examples.uri)
    scores = testing.export_and_serve(f"{model.uri}/Format-Serving", rows)[output]
    return scores, np.array([row["label"] % classes for row in rows])


def expected(model, output, examples, classes: int = CLASSES) -> tuple[float, float]:
    """Accuracy and mean loss of the served probabilities, computed in numpy."""
    scores, labels = scores_and_labels(model, output, examples, classes)
    scores = scores.astype(np.float64)
    if output == "raw" and scores.shape[1] == 1:
        scores = 1 / (1 + np.exp(-scores))
    elif output == "raw":
        scores = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    if scores.shape[1] == 1:
        scores = np.concatenate([1 - scores, scores], 1)
    # Clips as Keras does, to avoid log(0).
    likelihood = np.clip(scores[np.arange(len(labels)), labels], 1e-7, 1)
    return (scores.argmax(1) == labels).mean(), -np.log(likelihood).mean()


def check(metrics, accuracy: float, loss: float) -> None:
    assert metrics["sparse_categorical_accuracy"] == pytest.approx(accuracy, abs=1e-6)
    assert metrics["sparse_categorical_crossentropy"] == pytest.approx(loss, abs=1e-4)
    assert accuracy > 0.6


@pytest.fixture(scope="module")
def logits_model(export):
    """A model that serves logits under a name that does not show it."""
    return export(logits_fn)


@pytest.mark.parametrize("model_fn", [head_fn, pytest.param(v1_head_fn, marks=pytest.mark.long)])
def test_a_head_is_evaluated_against_a_baseline_with_other_outputs(export, evaluate, digits, logits_model, model_fn):
    model = export(model_fn)
    found, blessed = evaluate(model, logits_model, min_accuracy=0.5, max_accuracy_drop=0.5)
    check(found[()], *expected(model, "scores", digits["examples"][0]))
    assert blessed
    assert len(found) == 1 + CLASSES
    slices = [(values["example_count"], values["sparse_categorical_accuracy"]) for key, values in found.items() if key]
    assert sum(count * accuracy for count, accuracy in slices) / sum(count for count, _ in slices) == pytest.approx(
        found[()]["sparse_categorical_accuracy"]
    )
    # The change is relative to the baseline's own accuracy.
    baseline = expected(logits_model, "raw", digits["examples"][0])[0]
    assert found[()]["sparse_categorical_accuracy_diff"] == pytest.approx(
        found[()]["sparse_categorical_accuracy"] - baseline, abs=1e-6
    )


def test_logits_are_distinguished_from_probabilities(evaluate, digits, logits_model):
    found, _ = evaluate(logits_model, slices=())
    check(found[()], *expected(logits_model, "raw", digits["examples"][0]))


def keras_model(digits, folder: Path, classes: int):
    """A run_fn's model as in TFX's examples: a linear last layer, called by a plain signature."""
    width = 1 if classes == 2 else classes
    model = tf.keras.Sequential([tf.keras.layers.Dense(width, input_shape=[784])])
    losses = tf.keras.losses
    loss = losses.BinaryCrossentropy if classes == 2 else losses.SparseCategoricalCrossentropy
    model.compile("adam", loss(from_logits=True))
    model.fit(training_data(digits, 32, classes), epochs=3, verbose=0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(serialized):
        return {"raw": model(images_of(tf.io.parse_example(serialized, {"image": SPEC["image"]})))}

    model.save(str(folder / "model"), signatures={"serving_default": serve})
    return artifact("Model", folder / "model")


@pytest.mark.parametrize("classes", [pytest.param(CLASSES, marks=pytest.mark.long), 2])
def test_logits_are_distinguished_from_probabilities_in_a_keras_model(evaluate, digits, tmp_path, classes):
    model = keras_model(digits, tmp_path, classes)
    found, blessed = evaluate(model, classes=classes, min_accuracy=0.6, slices=())
    check(found[()], *expected(model, "raw", digits["examples"][0], classes))
    assert blessed


def test_a_single_score_for_two_classes_is_that_of_the_second(export, evaluate, digits):
    model = export(two_fn, classes=2)
    found, blessed = evaluate(model, classes=2, min_accuracy=0.5, slices=())
    check(found[()], *expected(model, "logistic", digits["examples"][0], classes=2))
    assert blessed


@pytest.mark.parametrize("binarize", [(0,), (1, 0), "all"])
def test_a_metric_of_the_first_class_is_refused_when_the_single_score_is_of_the_second(binarize):
    metrics = [Metric(name="Recall", binarize=binarize, threshold={"lower": 0.9})]
    section = EvaluatorSection(metrics=metrics)
    with pytest.raises(UserCodeError, match="Recall binarize the class 0, but the model has a single score") as caught:
        complete(eval_config(section, Task("classes", "label", ("no", "yes"))), Scores("logistic", of_two=True), None)
    assert "binarize: [1], or no binarize" in str(caught.value)
    complete(eval_config(section, Task("classes", "label", ("no", "yes"))), Scores("probabilities"), None)


@pytest.mark.long
def test_declared_metrics_of_a_baseline_with_logits_are_of_its_probabilities(export, evaluate, digits, logits_model):
    model, examples = export(head_fn), digits["examples"][0]
    found, blessed = evaluate(
        model,
        logits_model,
        metrics=[{"name": "AUC", "options": {"num_thresholds": 1000}, "change_threshold": {"absolute": -0.5}}],
        slices=(),
        max_accuracy_drop=0.5,
    )
    assert blessed
    scores, labels = scores_and_labels(model, "scores", examples)
    logits, _ = scores_and_labels(logits_model, "raw", examples)
    pooled = [roc_auc_score(np.eye(CLASSES)[labels].ravel(), each.ravel()) for each in (scores, softmax(logits, 1))]
    assert found[()]["auc"] == pytest.approx(pooled[0], abs=1e-3)
    assert found[()]["auc_diff"] == pytest.approx(pooled[0] - pooled[1], abs=1e-3)
    check(found[()], *expected(model, "scores", examples))


@pytest.mark.long
def test_declared_metrics_of_a_single_score_for_two_classes_are_of_the_second(export, evaluate, digits):
    model = export(two_fn, classes=2)
    metrics = [
        {"name": "AUC", "aggregate": "micro", "options": {"num_thresholds": 1000}},
        {"name": "Precision", "binarize": [1], "threshold": {"lower": 1.5}},
    ]
    found, blessed = evaluate(model, classes=2, metrics=metrics, slices=())
    # The threshold applies to the measured class.
    assert not blessed
    scores, labels = scores_and_labels(model, "logistic", digits["examples"][0], classes=2)
    assert found[()]["auc"] == pytest.approx(roc_auc_score(labels, scores[:, 0]), abs=1e-3)
    assert found[()]["precision"] == pytest.approx(precision_score(labels, scores[:, 0] > 0.5), abs=1e-6)
    check(found[()], *expected(model, "logistic", digits["examples"][0], classes=2))


def test_a_missing_declared_output_is_reported_before_the_evaluation(evaluate, logits_model, tmp_path):
    with pytest.raises(UserCodeError, match="the served outputs are raw, top: there is no `probabilities`"):
        evaluate(logits_model, prediction_key="probabilities")
    assert not (tmp_path / "evaluation").exists()
