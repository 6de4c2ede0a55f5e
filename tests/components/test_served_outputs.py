"""Finds the output with the class scores, and the operations that compute it."""

from __future__ import annotations

import contextlib

import pytest
import tensorflow as tf

from tests.refusals import refused
from tfx_estimator.components.served_outputs import Output, Scores, choose_of_any, choose_scores, read_outputs
from tfx_estimator.pipeline.base.errors import UserCodeError

FLOAT, STRING, INT = 1, 7, 9


def outputs(**kinds):
    """Makes outputs, each of (dtype, shape[, operation])."""
    return [Output(name, *kind) for name, kind in sorted(kinds.items())]


OURS = {
    "class_ids": (INT, (None,)),
    "classes": (STRING, (None,)),
    "logits": (FLOAT, (None, 10), "BiasAdd"),
    "probabilities": (FLOAT, (None, 10), "Softmax"),
}
HEAD = {"classes": (STRING, (None, 10)), "scores": (FLOAT, (None, 10), "Softmax")}
BINARY = {"logistic": (FLOAT, (None, 1), "Sigmoid"), "class_ids": (INT, (None, 1))}


@pytest.mark.parametrize(
    ("kinds", "declared", "classes", "expected"),
    [
        pytest.param(OURS, None, 10, ("probabilities", False, False), id="ours"),
        pytest.param(OURS, "logits", 10, ("logits", True, False), id="ours, logits declared"),
        pytest.param(HEAD, None, 10, ("scores", False, False), id="head"),
        pytest.param({**BINARY, "probabilities": (FLOAT, (None, 2))}, None, 2, ("probabilities", False, False), id="2"),
        pytest.param(BINARY, None, 2, ("logistic", False, True), id="one score for two classes"),
        pytest.param(BINARY, None, 10, None, id="one score for ten classes"),
        pytest.param({"logits": (FLOAT, (None, 1))}, None, 2, ("logits", True, True), id="one logit"),
        pytest.param({"predictions": (FLOAT, None)}, None, 10, ("predictions", False, False), id="shape unknown"),
        pytest.param({"predictions": (INT, (None,)), "logits": (FLOAT, (None, 3))}, None, 3, ("logits", True, False)),
        pytest.param({"dense_1": (FLOAT, (None, 10)), "n": (INT, (None,))}, None, 10, ("dense_1", False, False)),
        pytest.param({"dense_1": (FLOAT, (None, 10), "BiasAdd")}, None, 10, ("dense_1", True, False), id="linear"),
        pytest.param({"scores": (FLOAT, (None, 64)), "a": (FLOAT, (None, 10))}, None, 10, ("a", False, False)),
        pytest.param({"a": (FLOAT, (None, 10)), "b": (FLOAT, (None, 10))}, "b", 10, ("b", False, False), id="declared"),
        pytest.param({"a": (FLOAT, (None, 1), "BiasAdd"), "b": (FLOAT, (None, 3))}, None, 1, ("a",), id="regression"),
        pytest.param({"a": (FLOAT, (None, 2)), "b": (INT, (None, 1))}, None, 1, None, id="two numbers, a regression"),
    ],
)
def test_the_scores_are_found_by_name_kind_and_shape(kinds, declared, classes, expected):
    with contextlib.nullcontext() if expected else pytest.raises(UserCodeError, match="none of them fits"):
        assert choose_scores(outputs(**kinds), declared, classes) == Scores(*expected)


@pytest.mark.parametrize(
    ("kinds", "declared", "expected"),
    [
        ({"uncertainty": (FLOAT, (None,)), "probabilities": (FLOAT, (None, 10))}, None, ("probabilities",)),
        ({"uncertainty": (FLOAT, (None, 1)), "dense": (FLOAT, (None, 10))}, None, ("dense",)),
        ({"embedding": (FLOAT, (None, 64)), "logistic": (FLOAT, (None, 1))}, None, ("logistic", False, True)),
        ({"dense": (FLOAT, (None, 1))}, None, ("dense", False, True)),
        (BINARY, "logistic", ("logistic", False, True)),
        (OURS, "logits", ("logits", True)),
        ({"a": (FLOAT, (None, 10)), "b": (FLOAT, (None, 10)), "uncertainty": (FLOAT, (None,))}, None, None),
    ],
)
def test_without_a_class_count_one_number_is_the_score_only_if_no_other_output_can_be(kinds, declared, expected):
    with contextlib.nullcontext() if expected else pytest.raises(UserCodeError, match="each of a, b may be the scores"):
        assert choose_of_any(outputs(**kinds), declared) == Scores(*expected)


@pytest.mark.parametrize(
    ("kinds", "declared", "text"),
    [
        ({"a": (FLOAT, (None, 10)), "b": (FLOAT, (None, 10))}, None, "outputs are a, b: each of a, b may be"),
        (HEAD, "probabilities", "the served outputs are classes, scores: there is no `probabilities`"),
        (OURS, "class_ids", "`class_ids` is int64, not scores"),
        ({"classes": (STRING, (None, 10))}, None, "the served outputs are classes: none of them fits"),
    ],
)
def test_an_ambiguous_output_must_be_declared(kinds, declared, text):
    with refused(UserCodeError, text, todo="evaluator.prediction_key"):
        choose_scores(outputs(**kinds), declared, 10)


def _layers(name):
    dense = tf.keras.layers.Dense
    return {
        "one score": [dense(1)],
        "softmax apart": [dense(3), tf.keras.layers.Softmax()],
        "sigmoid": [dense(1, activation="sigmoid")],
        "cast": [dense(3, dtype="mixed_bfloat16"), tf.keras.layers.Activation("linear", dtype="float32")],
        "reshaped": [dense(3), tf.keras.layers.Reshape((3,))],
        "bias by hand": [dense(3, use_bias=False), _own_bias()],
        "model within": [tf.keras.Sequential([dense(3)])],
        "no bias": [dense(4, activation="sigmoid"), dense(3, use_bias=False)],
        "confused": [dense(3, activation="softmax"), dense(3, use_bias=False)],
        "experts": [_experts()],
    }[name]


def _own_bias():
    class Bias(tf.keras.layers.Layer):
        def build(self, shape):
            self.bias = self.add_weight("bias", [shape[-1]])

        def call(self, inputs):
            return inputs + self.bias

    return Bias()


def _experts():
    inputs = tf.keras.Input([2])
    probabilities = [tf.keras.layers.Dense(3, activation="softmax")(inputs) for _ in range(2)]
    stacked = tf.stack(probabilities, 1)
    gates = tf.keras.layers.Dense(2, activation="softmax")(inputs)
    return tf.keras.Model(inputs, tf.keras.layers.Dot(axes=1)([gates, stacked]))


OF_LOGITS = ("one score", "cast", "reshaped", "bias by hand", "model within", "no bias")


@pytest.mark.parametrize("name", [*OF_LOGITS, "softmax apart", "sigmoid", "confused", "experts"])
@pytest.mark.parametrize("signature", ["of its own", pytest.param("as Keras saves it", marks=pytest.mark.long)])
def test_logits_are_recognised_in_a_tensorflow_2_saved_model(tmp_path, name, signature):
    inputs = tf.keras.Input([2])
    model = tf.keras.Model(inputs, tf.keras.Sequential(_layers(name))(inputs))

    # As in TFX's example module files: a signature that parses and calls a model.
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(examples):
        features = tf.io.parse_example(examples, {"x": tf.io.FixedLenFeature([2], tf.float32)})
        return {"outputs": model(features["x"])}

    model.save(str(tmp_path), signatures={"serving_default": serve} if signature == "of its own" else None)
    classes = 2 if model.output_shape[-1] == 1 else 3
    scores = choose_scores(read_outputs(str(tmp_path)), None, classes)
    assert (scores.from_logits, scores.of_two) == (name in OF_LOGITS, classes == 2)
