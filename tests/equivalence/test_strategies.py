"""A strategy changes speed, not results: losses of all steps, final weights and metrics."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.equivalence.conftest import (
    EVAL,
    MULTI_WORKER,
    ONE_DEVICE,
    Trained,
    largest_difference,
    read_weights,
    trainer_of,
)

pytestmark = [pytest.mark.equivalence, pytest.mark.timeout(300)]

MIRRORED = {"strategy": "mirrored", "devices": {"cpu": 2}}
CENTRAL = {"strategy": "central_storage", "devices": {"cpu": 2}}
# Strategies of training and of evaluation.
STRATEGIES = {
    "one_device": (ONE_DEVICE, ONE_DEVICE),
    "mirrored, reduction_to_one_device": (MIRRORED, MIRRORED),
    "mirrored, hierarchical_copy": ({**MIRRORED, "cross_device_ops": "hierarchical_copy"}, CENTRAL),
    "central_storage": (CENTRAL, CENTRAL),
    "multi_worker_mirrored": (MULTI_WORKER, MIRRORED),
}
NETWORKS = {
    "mnist_cnn": {"data": "mnist exact", "global_batch_size": 32},
    "cifar_cnn": {"data": "cifar10 exact", "global_batch_size": 16},
}
# The others take minutes; `test_layers` and `test_recipes` train on two devices in seconds.
SHORT = ("one_device", "multi_worker_mirrored")
EACH = [
    pytest.param(network, strategy, marks=[] if network == "mnist_cnn" and strategy in SHORT else pytest.mark.long)
    for network in NETWORKS
    for strategy in STRATEGIES
]
STEPS = 60
# Absolute tolerances. The network is float64; the reported loss is float32, whose last bit is 1e-7.
LOSS, WEIGHTS = 1e-6, 1e-9
# In float32.
AS_SHIPPED = 1e-5


def in_float64(network: str, strategy: str) -> dict:
    """Returns the declared trainer of a network in float64: see `own_networks`."""
    train, evaluate = STRATEGIES[strategy]
    return {
        **trainer_of(network, train),
        "train_steps": STEPS,
        "optimizer": {"learning_rate": 0.02},
        "distribution": {"train": train, "eval": evaluate, "max_restarts": 0},
        **NETWORKS[network],
    }


def as_shipped(train: dict) -> dict:
    """Returns the declared trainer of `mnist_cnn`, in float32.

    The learning rate is small: if rounding flips a ReLU or a maximum, as it may in any two trainings, weights then
    differ by less than the tolerance.
    """
    return {
        "data": "mnist",
        "model": "mnist_cnn",
        "train_steps": STEPS,
        "global_batch_size": 32,
        "intra_op_threads": 1,
        "optimizer": {"name": "sgd", "learning_rate": 0.0001, "schedule": "constant"},
        "distribution": {"train": train, "max_restarts": 0},
    }


@pytest.fixture(scope="module")
def trained(trainings):
    """Returns the outputs of a network under a strategy; trains it on one device at the same time."""

    def find(network: str, strategy: str) -> Trained:
        return trainings.run(in_float64(network, "one_device"), in_float64(network, strategy))[1]

    return find


def assert_equal(one: Trained, other: Trained, loss: float, weights: float) -> None:
    """Compares every step's loss, and every variable."""
    other.assert_losses_of(one, STEPS, loss)
    assert one.weights["global_step"] == other.weights["global_step"] == STEPS
    assert largest_difference(one.weights, other.weights) <= weights
    # Untrained weights would be equal as well.
    initial = read_weights(f"{one.run.uri}/model.ckpt-0")
    moved = [np.abs(value - initial[name]).max() for name, value in one.weights.items() if name.endswith("kernel")]
    assert min(moved) > 10 * weights


@pytest.mark.parametrize(("network", "strategy"), [each for each in EACH if each.values[1] != "one_device"])
def test_losses_and_weights_equal_those_of_one_device(trained, network, strategy):
    assert_equal(trained(network, "one_device"), trained(network, strategy), LOSS, WEIGHTS)


@pytest.mark.long
def test_two_workers_train_the_unchanged_network(trainings):
    one, other = trainings.run(as_shipped(ONE_DEVICE), as_shipped(MULTI_WORKER))
    assert_equal(one, other, AS_SHIPPED, AS_SHIPPED)


@pytest.mark.parametrize(("network", "strategy"), EACH)
def test_evaluation_is_the_mean_over_every_example_once(trained, images, network, strategy):
    run = trained(network, strategy)
    pixels, labels = images(NETWORKS[network]["data"]).eval
    assert len(labels) == EVAL
    serving = tf.saved_model.load(str(run.model / "Format-Serving"))
    probabilities = serving.signatures["images"](images=tf.constant(pixels))["probabilities"].numpy()
    of_the_label = probabilities[np.arange(EVAL), labels].astype(np.float64)
    assert run.metric("eval_average_loss") == pytest.approx(-np.log(of_the_label).mean(), abs=1e-6)
    hits = int((probabilities.argmax(axis=1) == labels).sum())
    assert run.metric("eval_accuracy") == pytest.approx(hits / EVAL, abs=1e-6)


AUGMENT = ["random_flip", "random_crop", "random_rotation", "random_contrast", {"gaussian_noise": {"stddev": 0.2}}]
# Paths and strategies of training; the first are compared with each of the others.
AUGMENTED = {
    "estimator on two devices": ("estimator", MIRRORED),
    "keras": ("keras", ONE_DEVICE),
    "estimator": ("estimator", ONE_DEVICE),
    "keras loop on two devices": ("keras_custom_loop", MIRRORED),
    "keras in two workers": ("keras", MULTI_WORKER),
    "estimator in two workers": ("estimator", MULTI_WORKER),
}


def augmented(kind: str) -> dict:
    """Returns the declared trainer of augmented images."""
    path, train = AUGMENTED[kind]
    return {**as_shipped(train), "data": "mnist exact", "train_steps": 20, "path": path, "augment": AUGMENT}


@pytest.mark.long
@pytest.mark.parametrize("kind", list(AUGMENTED)[1:])
def test_augmented_images_are_the_same_under_every_path_and_strategy(trainings, kind):
    first, other = trainings.run(augmented("estimator on two devices"), augmented(kind))
    other.assert_losses_of(first, 20, AS_SHIPPED)
    assert other.metric("eval_average_loss") == pytest.approx(first.metric("eval_average_loss"), abs=AS_SHIPPED)
