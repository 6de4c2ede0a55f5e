"""Models of tables are evaluated by the label that the preprocessing makes, and against the best constant."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma
from scipy.special import expit, logit, xlogy
from sklearn.metrics import log_loss, roc_auc_score
from tensorflow_model_analysis.metrics import metric_types

from tests.components.evaluator.test_executor import run_evaluator
from tests.components.trainer.conftest import tf_estimator  # noqa: F401
from tfx_estimator import testing
from tfx_estimator.components.evaluator.skill import _computations
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.evaluator import EvaluatorSection
from tfx_estimator.pipeline.config.task import BINARY, CLASSES, REGRESSION, Task
from tfx_estimator.pipeline.run.results import read_reasons
from tfx_estimator.testing import artifact

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore::DeprecationWarning")]

ROWS, KEPT = 300, {"x": tf.io.VarLenFeature(tf.float32)}
RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=ROWS).astype(np.float32)
MISSING = RANDOM.random(ROWS) < 0.1
# The models and the preprocessing fill in 0.
FILLED = np.where(MISSING, 0, X)
FARE = RANDOM.uniform(5, 50, ROWS)
TIPS = FARE * (0.2 + 0.1 * (FILLED + RANDOM.normal(size=ROWS) - 0.8))
WEIGHT = RANDOM.uniform(0.5, 3, ROWS)
HOUR = RANDOM.integers(0, 3, ROWS)
BIG = (TIPS.astype(np.float32) > 0.2 * FARE.astype(np.float32)).astype(int)
SIZE = (FILLED > -0.5).astype(int) + (FILLED > 0.5)
TABLE = [
    {"x": None if missing else float(x), "fare": float(fare), "tips": float(tips), "w": float(w), "hour": int(hour)}
    for x, missing, fare, tips, w, hour in zip(X, MISSING, FARE, TIPS, WEIGHT, HOUR)
]


def dense(value):
    return tf.squeeze(tf.sparse.to_dense(tf.SparseTensor(value.indices, value.values, [value.dense_shape[0], 1])), 1)


def preprocessing_fn(inputs):
    """As taxi's, with a weight that it changes."""
    x, fare, tips = dense(inputs["x"]), inputs["fare"], inputs["tips"]
    size = tf.cast(x > -0.5, tf.int64) + tf.cast(x > 0.5, tf.int64)
    return {"x_xf": x, "tips_xf": tf.cast(tips > 0.2 * fare, tf.int64), "size": size, "w": 2 * inputs["w"]}


@pytest.fixture(scope="module")
def inputs():
    return {
        "examples": [testing.examples(TABLE, splits=("eval",))],
        "schema": [artifact("Schema", TABLE)],
        "transform_graph": [artifact("TransformGraph", (preprocessing_fn, TABLE))],
    }


def served(outputs):
    """Returns the artifact of a model whose outputs are functions of x, [batch, 1]."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(examples):
        x = tf.sparse.to_dense(tf.io.parse_example(examples, KEPT)["x"])
        x = tf.reshape(tf.pad(x, [[0, 0], [0, 1]])[:, :1], [-1, 1])
        return {name: function(x) for name, function in outputs.items()}

    module = tf.Module()
    module.serve = serve
    folder = artifact("Model")
    tf.saved_model.save(module, f"{folder.uri}/Format-Serving", {"serving_default": serve})
    return folder


def evaluate(inputs, out, model, task, baseline=None, **section):
    """Returns the metrics by slice, whether the model is blessed, and why not."""
    given = {**inputs, "model": [model], **({"baseline_model": [baseline]} if baseline else {})}
    found, blessed, uri = run_evaluator(given, out, EvaluatorSection(**section), task)
    return found, blessed, list(read_reasons(tfma.load_validation_result(uri), ()))


def logits(x):
    return tf.matmul(x, [[1.5]]) + tf.constant([-1.0])


def two(x):
    return tf.concat([1 - tf.sigmoid(logits(x)), tf.sigmoid(logits(x))], 1)


def names(x):
    return tf.tile([["0", "1"]], [tf.shape(x)[0], 1])


LEARNT = expit(1.5 * FILLED - 1)
FORMS = {
    # Of a canned Estimator's classification.
    "scores": {"scores": two, "classes": names},
    "logistic": {"logistic": lambda x: tf.sigmoid(logits(x)), "other": lambda x: tf.concat([x, x, x], 1)},
    "one logit": {"out": logits},
    "two logits": {"logits": lambda x: tf.concat([tf.zeros_like(x), logits(x)], 1)},
}
BIG_TIP = Task(BINARY, "tips_xf", preprocessed=True)


def constant(share: float):
    return served({"logistic": lambda x: share + 0 * x})


def skill(labels, predicted, weights=None) -> float:
    share = np.average(labels, weights=weights)
    return 1 - log_loss(labels, predicted, sample_weight=weights) / -(xlogy(share, share) + xlogy(1 - share, 1 - share))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", [BINARY, CLASSES, REGRESSION])
def test_skill_is_measured_in_any_order_and_in_parts(kind, weighted):
    three = RANDOM.dirichlet([1, 1, 1], ROWS)
    labels, predicted = {
        BINARY: (BIG, LEARNT.astype(float)),
        CLASSES: (SIZE, three),
        REGRESSION: (TIPS + 1e4, FARE + 1e4),
    }[kind]
    weights = WEIGHT if weighted else np.ones(ROWS)
    (computation,) = _computations(kind, "skill", example_weighted=weighted)
    combiner, parts = computation.combiner, []
    for rows in np.split(RANDOM.permutation(ROWS), [0, 1, 50, 51]):
        parts.append(combiner.create_accumulator())
        for row in rows:
            values = {"labels": labels[row], "predictions": predicted[row], "example_weights": WEIGHT[row]}
            given = {name: np.reshape(value, -1) for name, value in values.items()}
            parts[-1] = combiner.add_input(parts[-1], metric_types.StandardMetricInputs(given))
    (found,) = combiner.extract_output(combiner.merge_accumulators(parts)).values()
    if kind == REGRESSION:
        error, center = (labels - predicted) ** 2, np.average(labels, weights=weights)
        expected = 1 - np.average(error, weights=weights) / np.average((labels - center) ** 2, weights=weights)
    else:
        shares = np.bincount(labels, weights) / weights.sum()
        expected = 1 - log_loss(labels, predicted, sample_weight=weights) / -xlogy(shares, shares).sum()
    assert found == pytest.approx(expected, rel=1e-9)


def check(metrics, labels, predicted, weights=None) -> None:
    assert metrics["auc"] == pytest.approx(roc_auc_score(labels, predicted, sample_weight=weights), abs=1e-3)
    assert metrics["binary_crossentropy"] == pytest.approx(log_loss(labels, predicted, sample_weight=weights), rel=1e-4)
    assert metrics["mean_label"] == pytest.approx(np.average(labels, weights=weights), rel=1e-5)
    assert metrics["mean_prediction"] == pytest.approx(np.average(predicted, weights=weights), rel=1e-5)
    assert metrics["calibration"] == pytest.approx(metrics["mean_prediction"] / metrics["mean_label"], rel=1e-5)
    right = np.average((predicted > 0.5) == labels, weights=weights)
    assert metrics["binary_accuracy"] == pytest.approx(right, rel=1e-5)
    assert metrics["skill"] == pytest.approx(skill(labels, predicted, weights), abs=1e-5)
    assert metrics["example_count"] == len(labels)


@pytest.mark.parametrize(
    ("form", "weight"),
    # The weight is read as the preprocessing returns it, as the label is.
    [("scores", "w"), *(pytest.param(form, "", marks=pytest.mark.long) for form in FORMS)],
)
def test_two_classes_are_measured_by_one_probability_whatever_is_served(inputs, tmp_path, form, weight):
    section = {"slices": ["hour"], "metrics": [{"name": "Precision", "threshold": {"lower": 0.1}}]}
    task = Task(BINARY, "tips_xf", weight=weight, preprocessed=True)
    found, blessed, _ = evaluate(inputs, tmp_path, served(FORMS[form]), task, **section)
    weights = 2 * WEIGHT if weight else np.ones(ROWS)
    check(found.pop(()), BIG, LEARNT, weights)
    assert blessed
    assert sorted(key for (key,) in found) == [("hour", hour) for hour in range(3)]
    for ((_, hour),), metrics in found.items():
        check(metrics, BIG[hour == HOUR], LEARNT[hour == HOUR], weights[hour == HOUR])


def test_the_best_constant_is_not_blessed(inputs, tmp_path):
    found, blessed, reasons = evaluate(inputs, tmp_path, constant(BIG.mean()), BIG_TIP)
    # It answers no for every row, as often right as a model that has learnt little.
    assert found[()]["binary_accuracy"] == pytest.approx(1 - BIG.mean())
    assert abs(found[()]["skill"]) < 1e-9
    assert list(found) == [()]
    assert not blessed
    assert [each.partition(": ")[2] for each in reasons] == ["the model is no better than the constant predictor"]


@pytest.mark.long
def test_a_declared_threshold_takes_the_place_of_the_gate(inputs, tmp_path):
    kept = [{"name": "Skill", "threshold": {"lower": -0.5}}]
    assert evaluate(inputs, tmp_path, constant(0.5), BIG_TIP, metrics=kept)[1]


def test_the_loss_may_not_rise_against_the_latest_blessed_model(inputs, tmp_path):
    better, worse = served(FORMS["scores"]), served({"logistic": lambda x: tf.sigmoid(0.8 * logits(x))})
    found, blessed, reasons = evaluate(inputs, tmp_path, worse, BIG_TIP, better)
    rise = log_loss(BIG, expit(0.8 * logit(LEARNT))) - log_loss(BIG, LEARNT)
    assert found[()]["binary_crossentropy_diff"] == pytest.approx(rise, abs=1e-5)
    assert rise > 0.01
    assert not blessed
    assert reasons == [
        f"binary_crossentropy changed by {rise:+.4f} against the latest blessed model, allowed is +1.00 %"
    ]


def test_a_regression_is_of_a_raw_label(inputs, tmp_path):
    model = served({"predictions": lambda x: tf.matmul(x, [[3.0]]) + 5.0, "wide": lambda x: tf.concat([x, x], 1)})
    predicted = 3 * FILLED + 5
    found, blessed, _ = evaluate(inputs, tmp_path, model, Task(REGRESSION, "tips", weight="w", preprocessed=True))
    metrics, weights, error = found[()], 2 * WEIGHT, predicted - TIPS
    assert metrics["mean_squared_error"] == pytest.approx(np.average(error**2, weights=weights), rel=1e-5)
    assert metrics["root_mean_squared_error"] == pytest.approx(np.average(error**2, weights=weights) ** 0.5, rel=1e-5)
    assert metrics["mean_absolute_error"] == pytest.approx(np.average(np.abs(error), weights=weights), rel=1e-5)
    variance = np.average((TIPS - np.average(TIPS, weights=weights)) ** 2, weights=weights)
    assert metrics["skill"] == pytest.approx(1 - np.average(error**2, weights=weights) / variance, abs=1e-5)
    assert metrics["example_count"] == ROWS
    assert blessed


@pytest.mark.long
def test_classes_of_a_table_are_measured_as_those_of_images_and_gated_by_skill(inputs, tmp_path):
    task = Task(CLASSES, "size", preprocessed=True)
    model = served({"logits": lambda x: tf.concat([-3 * x - 1, tf.zeros_like(x), 3 * x - 1], 1)})
    raised = np.exp(np.stack([-3 * FILLED - 1, 0 * FILLED, 3 * FILLED - 1], 1))
    predicted = raised / raised.sum(1, keepdims=True)
    found, blessed, _ = evaluate(inputs, tmp_path, model, task)
    loss, shares = log_loss(SIZE, predicted), np.bincount(SIZE) / ROWS
    assert found[()]["sparse_categorical_accuracy"] == pytest.approx((predicted.argmax(1) == SIZE).mean())
    assert found[()]["sparse_categorical_crossentropy"] == pytest.approx(loss, rel=1e-4)
    assert found[()]["skill"] == pytest.approx(1 - loss / -xlogy(shares, shares).sum(), abs=1e-5)
    assert blessed


def test_a_label_that_nothing_returns_is_named(inputs, tmp_path):
    with pytest.raises(
        UserCodeError,
        match=r"no feature `tip_xf`: .* have size, tips_xf, w, x_xf, fare, .*\n.*\n.*did you mean `tips_xf`",
    ):
        evaluate(inputs, tmp_path, constant(0.5), Task(BINARY, "tip_xf", preprocessed=True))


@pytest.mark.usefixtures("tf_estimator")
def test_a_canned_classifier_is_measured_by_its_logistic(inputs, tmp_path):
    def input_fn():
        return tf.data.Dataset.from_tensors(({"x_xf": FILLED}, BIG)).repeat(60)

    def receiver():
        examples = tf.compat.v1.placeholder(tf.string, [None])
        x = tf.io.parse_example(examples, {"x": tf.io.FixedLenFeature([], tf.float32, 0.0)})["x"]
        return tf.estimator.export.ServingInputReceiver({"x_xf": x}, {"examples": examples})

    column = tf.feature_column.numeric_column("x_xf", shape=())
    estimator = tf.estimator.LinearClassifier([column], model_dir=str(tmp_path / "training"))
    estimator.train(input_fn)
    exported = estimator.export_saved_model(str(tmp_path / "exported"), receiver).decode()
    predicted = testing.export_and_serve(exported, TABLE, signature="predict")["logistic"][:, 0]
    found, blessed, _ = evaluate(inputs, tmp_path, artifact("Model", exported), BIG_TIP)
    check(found[()], BIG, predicted.astype(np.float64))
    assert blessed
