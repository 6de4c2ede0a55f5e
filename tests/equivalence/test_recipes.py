"""Options of the optimizer and the loss train equally on an Estimator and in Keras, under every strategy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.equivalence.conftest import (
    MULTI_WORKER,
    ONE_DEVICE,
    Trained,
    flat_weights,
    largest_difference,
    read_losses,
    trainer_of,
)
from tests.equivalence.test_paths import without_scope
from tests.equivalence.train_layers import SECTIONS
from tests.equivalence.train_recipes import BATCH, CONSTRAINED, LEFT_OUT, OTHERS, PATHS, RECIPES, SHAPE, STEPS, data

pytestmark = [pytest.mark.equivalence, pytest.mark.timeout(300)]

# Absolute tolerance, in float64.
WEIGHTS = 1e-9
# tests/model_fn covers their update rules on both paths; they take a third of the time here.
LONG = ("nadam", "adafactor")


@pytest.fixture(scope="module")
def weights(apart):
    """Returns a training's weights; one process trains all of LONG, another the rest."""

    def read(name: str) -> np.ndarray:
        names = LONG if name.partition(".")[0] in LONG else ("momentum", OTHERS)
        return flat_weights(apart("train_recipes", *names) / f"{name}.npz")

    return read


TRAINED = [
    *(
        pytest.param(recipe, path, strategy, marks=[pytest.mark.long] if recipe in LONG else [])
        for recipe in RECIPES
        for path in PATHS
        for strategy in SECTIONS
        if LEFT_OUT.get(recipe) != strategy
    ),
    # Outputs of layers are regularised in a functional network as well.
    *(("branched", *run) for run in (("keras", "one_device"), ("estimator", "mirrored"), ("keras", "mirrored"))),
    *((recipe, path, strategy) for recipe in CONSTRAINED for path in PATHS for strategy in ("one_device", "mirrored")),
]


@pytest.mark.parametrize(("recipe", "path", "strategy"), TRAINED)
def test_weights_equal_those_of_an_estimator_on_one_device(weights, recipe, path, strategy):
    one, other = weights(f"{recipe}.estimator.one_device"), weights(f"{recipe}.{path}.{strategy}")
    np.testing.assert_allclose(other, one, rtol=0, atol=WEIGHTS)
    if recipe in CONSTRAINED:
        check_constraints(other)


def test_weights_keep_their_constraints_with_a_scaled_loss(weights):
    check_constraints(weights("constrained_half"))


def check_constraints(weights: np.ndarray) -> None:
    """Checks `constrained`: in order of names a bias, its kernel of 144 x 8, the table of 9 x 4, the logits'."""
    kernel, table, bias = np.split(weights, [8, 1160, 1196, 1198])[1:4]
    norms = np.linalg.norm(kernel.reshape(144, 8), axis=0)
    assert norms.max() == pytest.approx(0.5, abs=1e-6)
    np.testing.assert_allclose(np.linalg.norm(table.reshape(9, 4), axis=1), 1.0, atol=1e-6)
    assert bias.min() >= 0


@pytest.mark.parametrize("name", ["momentum.unclipped", pytest.param("adafactor.plain", marks=pytest.mark.long)])
def test_clipping_and_the_loss_options_change_them(weights, name):
    recipe = name.partition(".")[0]
    assert np.abs(weights(name) - weights(f"{recipe}.keras.one_device")).max() > 1e-4


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("strategy", ["one_device", "mirrored"])
def test_each_step_uses_the_scaled_rate(weights, path, strategy):
    # From the rate of one replica to that of two; with one replica, the plain warm-up.
    warm = (lambda step: 1 + min(step / 4, 1)) if strategy == "mirrored" else (lambda step: min((step + 1) / 4, 1))
    rates = [0.1 * warm(step) for step in range(STEPS)]
    found = weights(f"scaled.{path}.{strategy}")
    # The rate itself is float32.
    np.testing.assert_allclose(found, _descended(rates), rtol=0, atol=1e-7)
    assert np.abs(found - _descended([0.1] * (STEPS - 1) + [0.11])).max() > 1e-5


def _descended(rates: list[float]) -> np.ndarray:
    """Returns the weights of `linear` after a step of gradient descent for each rate."""
    weights = np.zeros((math.prod(SHAPE), 2))
    for rate, (features, labels) in zip(rates, data(BATCH).as_numpy_iterator()):
        images = features["image"].reshape(BATCH, -1).astype(np.float64)
        scores = np.exp(images @ weights)
        errors = scores / scores.sum(1, keepdims=True) - np.eye(2)[labels]
        weights = weights - rate * images.T @ errors / BATCH
    return weights.ravel()


CLASS_WEIGHTS = {"class_weights": [1.0, 3.0, *[1.0] * 8]}
# Declared options: schedules, clipping, weight decay, options of the loss.
DECLARED = {
    **RECIPES,
    "adafactor": {**RECIPES["adafactor"], **CLASS_WEIGHTS},
    "l2": {
        "optimizer": {
            "name": "momentum",
            "weight_decay": 0.05,
            "schedule": "piecewise",
            "boundaries": [10, 30],
            "values": [0.02, 0.01, 0.001],
        },
        **CLASS_WEIGHTS,
    },
    "one_cycle": {
        "optimizer": {"name": "sgd", "nesterov": True, "momentum": 0.9, "clip_value": 0.01, "schedule": "one_cycle"},
        "label_smoothing": 0.2,
    },
    "adamw": {
        "optimizer": {
            "name": "adamw",
            "learning_rate": 0.003,
            "clip_norm": 0.05,
            "weight_decay": 0.01,
            "schedule": "inverse_time",
            "decay_steps": 10,
            "decay_rate": 0.5,
            "staircase": True,
        }
    },
    "rmsprop": {
        "optimizer": {
            "name": "rmsprop",
            "learning_rate": 0.003,
            "global_clip_norm": 0.3,
            "warmup_steps": 5,
            "schedule": "polynomial",
            "power": 2.0,
            "end_learning_rate": 0.0001,
        }
    },
}
# Each of these is left out, to see its effect.
OPTIONS = {"clip_norm", "global_clip_norm", "clip_value", "weight_decay", "decoupled_weight_decay"}
LOSS_OPTIONS = {"label_smoothing", "class_weights"}


def declared(recipe: dict, path: str, train: dict = ONE_DEVICE) -> dict:
    """Returns the declared trainer of a recipe, on one of the three paths."""
    return {**trainer_of("regularised", train), "path": path, **recipe}


def _trained(trained: Trained, path: str) -> dict[str, np.ndarray]:
    weights = without_scope(trained) if path == "estimator" else trained.weights
    layers = ("conv", "dense", "logits")
    return {name: weights[name] for layer in layers for name in (f"{layer}/kernel", f"{layer}/bias")}


@pytest.mark.long
@pytest.mark.parametrize(
    ("recipe", "path", "train"),
    [
        pytest.param(recipe, path, train, id=f"{recipe}-{path}-{train['strategy']}")
        for train, recipes in ((ONE_DEVICE, DECLARED), (MULTI_WORKER, ("momentum", "l2", "adafactor")))
        for recipe in recipes
        for path in ("keras", "keras_custom_loop")
    ],
)
def test_a_recipe_trains_the_same_on_each_path(trainings, recipe, path, train):
    first, other = trainings.run(*(declared(DECLARED[recipe], each, train) for each in ("estimator", path)))
    one, two = _trained(first, "estimator"), _trained(other, path)
    assert largest_difference(one, two) <= WEIGHTS
    # TensorBoard has them in float32.
    other.assert_losses_of(first, 60, rtol=1e-6)
    rates = [dict(read_losses(each.run.uri, ("learning_rate",))) for each in (first, other)]
    # In float32, relative to its highest value.
    assert rates[1] == pytest.approx(rates[0], rel=0, abs=3e-7 * max(rates[0].values()))
    assert len(set(rates[0].values())) > 2
    for metric in ("eval_accuracy", "eval_average_loss"):
        assert other.metric(metric) == pytest.approx(first.metric(metric), abs=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("recipe", DECLARED)
def test_each_entry_of_a_recipe_changes_the_weights(trainings, recipe):
    whole = DECLARED[recipe]
    options = whole["optimizer"]
    fewer = [{**whole, "optimizer": _without(options, name)} for name in OPTIONS.intersection(options)]
    fewer += [_without(whole, name) for name in LOSS_OPTIONS.intersection(whole)]
    assert fewer
    path = "keras_custom_loop"
    results = trainings.run(*(declared(each, path) for each in [whole, *fewer]))
    first, *others = (_trained(each, path) for each in results)
    assert min(largest_difference(first, other) for other in others) > 1e-4


def _without(values: dict, name: str) -> dict:
    return {key: value for key, value in values.items() if key != name}


@pytest.mark.long
@pytest.mark.parametrize("path", ["estimator", "keras", "keras_custom_loop"])
def test_two_workers_scale_like_two_devices(trainings, path):
    def scaled(train: dict, **optimizer) -> dict:
        values = {"name": "sgd", "learning_rate": 0.01, "warmup_steps": 30, **optimizer}
        return declared({"params": {"network": "linear"}, "optimizer": values}, path, train)

    devices = {"strategy": "mirrored", "devices": {"cpu": 2}}
    workers, mirrored, one = trainings.run(
        scaled(MULTI_WORKER, scaling="sqrt"), scaled(devices, scaling="sqrt"), scaled(ONE_DEVICE, scaling="sqrt")
    )
    assert largest_difference(workers.weights, mirrored.weights) <= WEIGHTS
    assert largest_difference(workers.weights, one.weights) > 1e-4
    learning_rate = workers.run.get_string_custom_property("learning_rate")
    assert learning_rate == "0.0141421 (0.01 times the root of 2 replicas)"


@pytest.mark.long
@pytest.mark.parametrize("path", ["estimator", "keras", "keras_custom_loop"])
def test_balanced_classes_are_weighted_by_their_counts(trainings, images, path):
    network = {"path": path, "data": "mnist exact", "model": "mnist_cnn", "train_steps": 10, "threads": {"intra_op": 1}}
    counts = np.bincount(images("mnist exact").train[1], minlength=10)
    weights = [float(counts.sum()) / (10 * count) for count in counts.tolist()]
    named, listed, plain = trainings.run(
        {**network, "class_weights": "balanced"}, {**network, "class_weights": weights}, network
    )
    assert largest_difference(named.weights, listed.weights) <= WEIGHTS
    assert largest_difference(named.weights, plain.weights) > 1e-5


@pytest.mark.long
@pytest.mark.parametrize("path", ["estimator", "keras"])
def test_two_workers_clip_the_gradient_of_both(trainings, path):
    def clipped(train: dict, **optimizer) -> dict:
        values = {"name": "adamw", "learning_rate": 0.003, **optimizer}
        return declared({"optimizer": values, "label_smoothing": 0.1}, path, train)

    clip = {"global_clip_norm": 0.5}
    one, two, free = trainings.run(clipped(ONE_DEVICE, **clip), clipped(MULTI_WORKER, **clip), clipped(ONE_DEVICE))
    assert largest_difference(one.weights, two.weights) <= WEIGHTS
    assert largest_difference(one.weights, free.weights) > 1e-4
