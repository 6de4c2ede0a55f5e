"""What is declared of the optimizer and the loss trains the same on an Estimator and in Keras, under every strategy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.equivalence.conftest import MULTI_WORKER, ONE_DEVICE, largest_difference, train_apart
from tests.equivalence.train_layers import SECTIONS
from tests.equivalence.train_recipes import BATCH, LEFT_OUT, PATHS, RECIPES, SHAPE, STEPS, data

pytestmark = [pytest.mark.equivalence, pytest.mark.timeout(300)]

# Absolute, of float64.
WEIGHTS = 1e-9


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory):
    """The weights that came of a training, all of them done in one fresh process."""
    folder = tmp_path_factory.mktemp("recipes")
    train_apart("train_recipes", folder)

    def read(name: str) -> np.ndarray:
        values = np.load(folder / f"{name}.npz")
        return np.concatenate([values[key].ravel() for key in values.files])

    return read


TRAINED = [
    (recipe, path, strategy)
    for recipe in RECIPES
    for path in PATHS
    for strategy in SECTIONS
    if LEFT_OUT.get(recipe) != strategy
]


@pytest.mark.parametrize(("recipe", "path", "strategy"), TRAINED)
def test_weights_are_those_of_an_estimator_on_one_device(weights, recipe, path, strategy):
    one, other = weights(f"{recipe}.estimator.one_device"), weights(f"{recipe}.{path}.{strategy}")
    np.testing.assert_allclose(other, one, rtol=0, atol=WEIGHTS)


def test_clipping_and_the_loss_options_change_them(weights):
    for name in ("momentum.unclipped", "adafactor.plain"):
        recipe = name.partition(".")[0]
        assert np.abs(weights(name) - weights(f"{recipe}.keras.one_device")).max() > 1e-4


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("strategy", ["one_device", "mirrored"])
def test_a_scaled_rate_is_what_each_step_uses(weights, path, strategy):
    replicas = 2 if strategy == "mirrored" else 1
    rates = [0.1 * (1 + (replicas - 1) * min(step / 4, 1)) for step in range(STEPS)]
    found = weights(f"scaled.{path}.{strategy}")
    # The rate itself is float32.
    np.testing.assert_allclose(found, _descended(rates), rtol=0, atol=1e-7)
    assert np.abs(found - _descended([0.1] * (STEPS - 1) + [0.11])).max() > 1e-5


def _descended(rates: list[float]) -> np.ndarray:
    """The weights of `linear` after a step of gradient descent for each rate."""
    weights = np.zeros((math.prod(SHAPE), 2))
    for rate, (features, labels) in zip(rates, data(BATCH).as_numpy_iterator()):
        images = features["image"].reshape(BATCH, -1).astype(np.float64)
        scores = np.exp(images @ weights)
        errors = scores / scores.sum(1, keepdims=True) - np.eye(2)[labels]
        weights = weights - rate * images.T @ errors / BATCH
    return weights.ravel()


@pytest.mark.long
@pytest.mark.parametrize("path", ["estimator", "keras", "keras_custom_loop"])
def test_two_workers_scale_as_two_devices_do(trainings, path):
    def declared(train: dict, **optimizer) -> dict:
        return {
            "path": path,
            "data": "mnist exact",
            "model": "own_networks:in_float64",
            "params": {"network": "linear"},
            "global_batch_size": 32,
            "intra_op_threads": 1,
            "optimizer": {"name": "sgd", "learning_rate": 0.01, "warmup_steps": 30, **optimizer},
            "distribution": {"train": train, "max_restarts": 0},
        }

    devices = {"strategy": "mirrored", "devices": {"cpu": 2}}
    workers, mirrored, one = trainings.run(
        declared(MULTI_WORKER, scaling="sqrt"), declared(devices, scaling="sqrt"), declared(ONE_DEVICE, scaling="sqrt")
    )
    assert largest_difference(workers.weights, mirrored.weights) <= WEIGHTS
    assert largest_difference(workers.weights, one.weights) > 1e-4
    said = workers.run.get_string_custom_property("learning_rate")
    assert said == "0.0141421 (0.01 times the root of 2 replicas)"


@pytest.mark.long
@pytest.mark.parametrize("path", ["estimator", "keras", "keras_custom_loop"])
def test_balanced_classes_have_the_weights_of_their_counts(trainings, images, path):
    declared = {
        "path": path,
        "data": "mnist exact",
        "model": "mnist_cnn",
        "train_steps": 10,
        "threads": {"intra_op": 1},
    }
    counts = np.bincount(images("mnist exact").train[1], minlength=10)
    weights = [float(counts.sum()) / (10 * count) for count in counts.tolist()]
    named, listed, plain = trainings.run(
        {**declared, "class_weights": "balanced"}, {**declared, "class_weights": weights}, declared
    )
    assert largest_difference(named.weights, listed.weights) <= WEIGHTS
    assert largest_difference(named.weights, plain.weights) > 1e-5


@pytest.mark.long
@pytest.mark.parametrize("path", ["estimator", "keras"])
def test_two_workers_clip_the_gradient_of_both(trainings, path):
    def declared(train: dict, **optimizer) -> dict:
        return {
            "path": path,
            "data": "mnist exact",
            "model": "own_networks:in_float64",
            "params": {"network": "regularised"},
            "global_batch_size": 32,
            "intra_op_threads": 1,
            "optimizer": {"name": "adamw", "learning_rate": 0.003, **optimizer},
            "label_smoothing": 0.1,
            "distribution": {"train": train, "max_restarts": 0},
        }

    clip = {"global_clip_norm": 0.5}
    one, two, free = trainings.run(declared(ONE_DEVICE, **clip), declared(MULTI_WORKER, **clip), declared(ONE_DEVICE))
    assert largest_difference(one.weights, two.weights) <= WEIGHTS
    assert largest_difference(one.weights, free.weights) > 1e-4
