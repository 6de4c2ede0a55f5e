"""What is declared of the optimizer and the loss trains the same on an Estimator and in Keras, under every strategy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.equivalence.conftest import MULTI_WORKER, ONE_DEVICE, largest_difference, train_apart
from tests.equivalence.train_layers import SECTIONS
from tests.equivalence.train_recipes import LEFT_OUT, PATHS, RECIPES

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
