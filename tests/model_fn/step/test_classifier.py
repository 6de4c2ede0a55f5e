"""The Estimator model_fn, trained for real on a few examples."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.model_fn.batch import IMAGES, LABELS, PARAMS, input_fn
from tfx_estimator.model_fn import networks
from tfx_estimator.model_fn.networks import mnist_cnn
from tfx_estimator.model_fn.step.classifier import make_model_fn

RATE = 0.01


def params(optimizer=None, **values):
    return {**PARAMS, "optimizer": {**PARAMS["optimizer"], "learning_rate": RATE, **(optimizer or {})}, **values}


def linear(num_classes: int, **options):
    dense = tf.keras.layers.Dense(num_classes, name="linear", **{"kernel_initializer": "zeros", **options})
    return tf.keras.Sequential([tf.keras.layers.Flatten(), dense], name="net")


def estimator(network, model_dir, **values):
    return tf.estimator.Estimator(make_model_fn(network), str(model_dir), params=params(**values))


def softmax_step(weights: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One step of gradient descent on the mean cross-entropy, in numpy."""
    pixels = IMAGES.reshape(12, -1).astype(np.float64)
    logits = pixels @ weights + bias
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    gradient = (p - np.eye(3)[LABELS]) / 12
    return weights - RATE * pixels.T @ gradient, bias - RATE * gradient.sum(0)


def test_training_is_gradient_descent_on_the_mean_loss(tmp_path):
    trained = estimator(linear, tmp_path).train(input_fn, steps=5)
    weights, bias = np.zeros((784, 3)), np.zeros(3)
    for _ in range(5):
        weights, bias = softmax_step(weights, bias)
    np.testing.assert_allclose(trained.get_variable_value("net/linear/kernel"), weights, atol=1e-5)
    np.testing.assert_allclose(trained.get_variable_value("net/linear/bias"), bias, atol=1e-5)


def test_a_networks_own_regularisation_counts(tmp_path):
    def network(**options):
        return functools.partial(linear, kernel_initializer="glorot_uniform", **options)

    # Keras's L2(0.25) is 0.25 * sum of squares; the declared weight decay is half of its factor times that sum.
    regularised = network(kernel_regularizer=tf.keras.regularizers.L2(0.25))
    own = estimator(regularised, tmp_path / "a").train(input_fn, steps=5)
    declared = estimator(network(), tmp_path / "b", optimizer={"weight_decay": 0.5}).train(input_fn, steps=5)
    kernels = [e.get_variable_value("net/linear/kernel") for e in (own, declared)]
    np.testing.assert_allclose(kernels[0], kernels[1], atol=1e-6)


def test_evaluation_is_the_true_mean_over_uneven_batches(tmp_path):
    model = estimator(linear, tmp_path)
    model.train(input_fn, steps=5)
    kernel, bias = (model.get_variable_value(f"net/linear/{name}").astype(np.float64) for name in ("kernel", "bias"))
    logits = IMAGES.reshape(12, -1) @ kernel + bias
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    # 12 examples in batches of 5, 5 and 2.
    uneven = lambda: tf.data.Dataset.from_tensor_slices(({"image": IMAGES}, LABELS)).batch(5)  # noqa: E731
    metrics = model.evaluate(uneven)
    assert metrics["average_loss"] == pytest.approx(-np.log(p[np.arange(12), LABELS]).mean(), abs=1e-5)
    assert metrics["accuracy"] == pytest.approx((logits.argmax(1) == LABELS).mean(), abs=1e-6)


def test_the_seed_decides_the_initial_weights(tmp_path):
    kernels = [
        estimator(mnist_cnn, tmp_path / name, seed=seed, optimizer={"learning_rate": 1e-12})
        .train(input_fn, steps=1)
        .get_variable_value("mnist_cnn/conv1/kernel")
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    np.testing.assert_array_equal(kernels[0], kernels[1])
    assert np.abs(kernels[0] - kernels[2]).max() > 0.01


def test_predictions_are_probabilities_of_the_logits(tmp_path):
    names = ["sandal", "T-shirt", "\u0161aty"]
    model = estimator(linear, tmp_path, label_names=names)
    model.train(input_fn, steps=5)
    once = lambda: tf.data.Dataset.from_tensors({"image": IMAGES})  # noqa: E731
    rows = list(model.predict(once))
    probabilities = np.stack([row["probabilities"] for row in rows])
    np.testing.assert_allclose(probabilities.sum(1), 1.0, atol=1e-6)
    assert [row["class_ids"] for row in rows] == probabilities.argmax(1).tolist()
    assert [row["classes"].decode() for row in rows] == [names[number] for number in probabilities.argmax(1)]


@pytest.mark.parametrize(
    ("network", "shape", "weights"),
    [
        ("mnist_cnn", (28, 28, 1), 347_146),
        ("cifar_cnn", (32, 32, 3), 167_562),
        pytest.param("cifar_resnet", (32, 32, 3), None, marks=pytest.mark.long),
        pytest.param("cifar_resnet9", (32, 32, 3), 414_064, marks=pytest.mark.long),
    ],
)
def test_networks_have_the_stated_size_and_learn(tmp_path, network, shape, weights):
    build = getattr(networks, network)
    model = build(10)
    assert model(np.zeros((2, *shape), np.float32)).shape == (2, 10)
    if weights:
        assert model.count_params() == weights
    images = np.random.default_rng(3).normal(size=(16, *shape)).astype(np.float32)
    labels = (np.arange(16) % 10).astype(np.int64)
    data = lambda: tf.data.Dataset.from_tensors(({"image": images}, labels)).repeat()  # noqa: E731
    values = params(num_classes=10, global_batch_size=16, optimizer={"name": "adam", "learning_rate": 0.003})
    trained = tf.estimator.Estimator(make_model_fn(build), str(tmp_path), params=values)
    first = trained.train(data, steps=1).evaluate(data, steps=1, name="first")["average_loss"]
    trained.train(data, steps=30)
    assert trained.evaluate(data, steps=1, name="last")["average_loss"] < first / 2
