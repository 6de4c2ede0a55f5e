"""Assignments in a layer's `call`, as part of an Estimator's step."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.components.trainer.user import keeps_state
from tests.model_fn.batch import IMAGES, LABELS, PARAMS, input_fn
from tfx_estimator.model_fn.step.classifier import make_model_fn


def train(kind, folder, **params):
    model_fn = make_model_fn(lambda classes: keeps_state.network(classes, kind))
    estimator = tf.estimator.Estimator(model_fn, str(folder), params={**PARAMS, **params})
    return estimator.train(input_fn, steps=3)


@pytest.mark.parametrize("kind", ["Keeps", "KeepsWhere"])
@pytest.mark.parametrize("params", [{}, {"gradient_accumulation": 3}, {"xla": True}], ids=["", "parts", "xla"])
def test_it_is_done_once_for_each_call_and_in_no_evaluation(tmp_path, kind, params):
    trained = train(kind, tmp_path, **params)
    calls = 3 * params.get("gradient_accumulation", 1)
    assert trained.get_variable_value("keeps/count") == calls
    trained.evaluate(input_fn, steps=2)
    assert trained.get_variable_value("keeps/count") == calls


def test_a_read_sees_what_the_code_assigned_before_it(tmp_path):
    trained = train("Keeps", tmp_path)
    average, images = np.zeros(784), IMAGES.reshape(12, -1).astype(np.float64)
    kernel, bias = np.ones((784, 3)), np.zeros(3)
    for step in range(3):
        average = 0.9 * average + 0.1 * images.mean(0)
        seen = (images * (1 + 0.1 * step) - average) * (1 + 0.1 * (step + 1))
        scores = seen @ kernel + bias
        p = np.exp(scores - scores.max(1, keepdims=True))
        gradient = (p / p.sum(1, keepdims=True) - np.eye(3)[LABELS]) / 12
        kernel, bias = kernel - 0.1 * seen.T @ gradient, bias - 0.1 * gradient.sum(0)
    np.testing.assert_allclose(trained.get_variable_value("keeps/average"), average, atol=1e-5)
    np.testing.assert_allclose(trained.get_variable_value("logits/kernel"), kernel, atol=1e-4)


@pytest.mark.unit
@pytest.mark.timeout(180)
def test_a_replica_does_its_own_and_nothing_that_keras_tells_of(codes):
    printed = codes.answers("-m", "tests.model_fn.assignments_process")
    found = {(strategy, layer): steps for strategy, layer, steps, _ in printed}
    for layer in ("keras", "synchronized"):
        assert found["one_device", layer] == [[]]
        assert found["mirrored", layer] == [[], []]
    assert [len(each) for each in found["one_device", "keeps"]] == [4]
    first, second = found["mirrored", "keeps"]
    assert len(first) == len(second) == 4
    assert all("update_0" in name for name in first)
    assert all("update_1" in name for name in second)
    # Whether branches created later have automatic control dependencies.
    assert not any(after for *_, after in printed)


@pytest.mark.parametrize("params", [{}, {"xla": True}], ids=["", "xla"])
@pytest.mark.parametrize("shape", [[784], [28, 28, 1]], ids=["flat", "fused"])
def test_a_normalisation_that_is_called_twice_averages_in_turn(tmp_path, shape, params):
    def network(num_classes):
        layers = tf.keras.layers
        image, norm = tf.keras.Input([28, 28, 1]), layers.BatchNormalization(momentum=0.5, name="norm")
        pixels = layers.Reshape(shape)(image)
        both = layers.add([norm(pixels), norm(3 * pixels)])
        return tf.keras.Model(image, layers.Dense(num_classes)(layers.Flatten()(both)))

    estimator = tf.estimator.Estimator(make_model_fn(network), str(tmp_path), params={**PARAMS, **params})
    trained = estimator.train(input_fn, steps=3)
    pixels = IMAGES.reshape([12, *shape]).astype(np.float64)
    axes = tuple(range(len(shape)))
    mean, variance, average, spread = pixels.mean(axes), pixels.var(axes), 0.0, 1.0
    # Like TensorFlow's fused operation.
    variance = variance * (12 * 784 / (12 * 784 - 1) if shape[1:] else 1)
    for _ in range(3):
        for times in (1, 3):
            average, spread = (average + times * mean) / 2, (spread + times**2 * variance) / 2
    np.testing.assert_allclose(trained.get_variable_value("norm/moving_mean"), average, rtol=1e-4)
    np.testing.assert_allclose(trained.get_variable_value("norm/moving_variance"), spread, rtol=1e-4)
