"""Whether a user's Keras model outputs probabilities or logits, and which of them its loss takes."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tfx_estimator.model_fn.user_models.keras_model import build, served
from tfx_estimator.model_fn.user_models.probabilities import gives_probabilities, loss_takes_probabilities, mismatch


def _functional(last=None):
    image = tf.keras.Input([4, 4, 1], name="image")
    last = last or tf.keras.layers.Dense(3, name="scores")
    return tf.keras.Model(image, last(tf.keras.layers.Flatten(name="flat")(image)))


@pytest.mark.parametrize("last", ["dense", "activation", "layer", "op", "nested"])
def test_a_softmax_that_keras_skips_in_its_loss_is_served_unchanged(last):
    """Regardless of from_logits, Keras's own steps give the same model as for logits, and as without from_logits."""
    layers = tf.keras.layers

    def trained(from_logits, last):
        tf.keras.utils.set_random_seed(1)
        image, scores = tf.keras.Input([4], name="image"), tf.keras.Input([3], name="scores")
        outputs = layers.Dense(3, activation="softmax" if last == "dense" else None, name="dense")(image)
        outputs = {
            "activation": layers.Activation("softmax", name="last"),
            "layer": layers.Softmax(name="last"),
            "op": tf.nn.softmax,
            "nested": tf.keras.Model(scores, layers.Softmax(name="last")(scores), name="nested"),
        }.get(last, lambda given: given)(outputs)
        model = tf.keras.Model(image, outputs)
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits)
        model.compile(tf.keras.optimizers.SGD(0.5), loss)
        images = np.random.default_rng(0).random((8, 4), np.float32)
        for _ in range(3):
            model.train_on_batch(images, images[:, :3].argmax(-1))
        return model, model(images)

    (model, scores), (plain, logits) = trained(True, last), trained(True, "logits")
    np.testing.assert_allclose(scores, tf.nn.softmax(logits), atol=1e-6)
    assert gives_probabilities(model)
    assert not gives_probabilities(plain)
    for name, value in served(scores, True, 3).items():
        if name != "logits":
            np.testing.assert_allclose(value, served(logits, False, 3)[name], atol=1e-6)
    assert "the model ends with softmax: Keras trains on the input of the softmax" in mismatch(model)
    assert not mismatch(plain)


@pytest.mark.parametrize(
    ("loss", "activation", "message"),
    [
        ("sparse_categorical_crossentropy", None, "without an activation"),
        (lambda: tf.keras.losses.SparseCategoricalCrossentropy(), None, "without an activation"),
        (lambda: tf.keras.losses.BinaryCrossentropy(from_logits=True), "sigmoid", "ends with sigmoid"),
        (lambda: tf.keras.losses.BinaryCrossentropy(), "sigmoid", ""),
        (lambda: tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), "sigmoid", ""),
        (lambda: tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), None, ""),
        ("sparse_categorical_crossentropy", "softmax", ""),
        ("mse", None, ""),
        (lambda: lambda labels, outputs: outputs, None, ""),
    ],
)
def test_a_loss_that_does_not_fit_the_last_activation_is_noted(loss, activation, message):
    dense = tf.keras.layers.Dense(3, activation=activation, name="dense")
    again = tf.keras.layers.Dense(3, activation=activation, name="dense")
    for model in (_functional(dense), tf.keras.Sequential([tf.keras.Input([16], name="image"), again])):
        model.compile("sgd", loss() if callable(loss) else loss)
        found = mismatch(model)
        assert message in found
        assert bool(message) is bool(found)
        if activation == "sigmoid":
            # As logits of a softmax they are probabilities.
            assert gives_probabilities(model) == ("Binary" in type(model.loss).__name__)


def test_a_loss_function_of_the_users_is_not_judged_by_its_name():
    def weighted_crossentropy(labels, outputs):
        return tf.keras.losses.sparse_categorical_crossentropy(labels, outputs, from_logits=True)

    model = _functional()
    model.compile("sgd", weighted_crossentropy)
    build(model, {"image": tf.io.FixedLenFeature([4, 4, 1], tf.float32)})
    assert loss_takes_probabilities(model) is None
    assert not gives_probabilities(model)


@pytest.mark.parametrize("kind", ["layer", "op", "class", "mixed", "logits", "class of logits"])
@pytest.mark.parametrize("loss", ["mse", "own"])
def test_a_softmax_is_found_wherever_it_is(kind, loss):
    layers = tf.keras.layers

    class Own(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.dense, self.flatten = layers.Dense(3), layers.Flatten()

        def call(self, image):
            scores = self.dense(self.flatten(image))
            return scores if kind.endswith("logits") else tf.nn.softmax(scores)

    functional = _functional()
    model = {
        "layer": lambda: tf.keras.Sequential([layers.Flatten(), layers.Dense(3), layers.Softmax()]),
        "op": lambda: tf.keras.Model(functional.input, tf.nn.softmax(functional.output)),
        "mixed": lambda: tf.keras.Model(functional.input, layers.Softmax(dtype="float16")(functional.output)),
        "logits": lambda: functional,
    }.get(kind, Own)()
    model.compile("sgd", "mse" if loss == "mse" else lambda labels, outputs: outputs)
    build(model, {"image": tf.io.FixedLenFeature([4, 4, 1], tf.float32)})
    assert gives_probabilities(model) == (not kind.endswith("logits"))
