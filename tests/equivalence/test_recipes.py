"""What is declared of the optimizer and the loss trains the same on an Estimator and in Keras, under every strategy."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from tests.equivalence.train_layers import SECTIONS
from tests.equivalence.train_recipes import PATHS, RECIPES
from tests.root import ROOT

pytestmark = [pytest.mark.equivalence, pytest.mark.timeout(300)]

# Absolute, of float64.
WEIGHTS = 1e-9


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory):
    """The weights that came of a training, all of them done in one fresh process."""
    folder = tmp_path_factory.mktemp("recipes")
    done = subprocess.run(
        [sys.executable, "-m", "tests.equivalence.train_recipes", str(folder)],
        cwd=ROOT,
        env={**os.environ, "TF_NUM_INTRAOP_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]

    def read(name: str) -> np.ndarray:
        values = np.load(folder / f"{name}.npz")
        return np.concatenate([values[key].ravel() for key in values.files])

    return read


@pytest.mark.parametrize("strategy", SECTIONS)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_weights_are_those_of_an_estimator_on_one_device(weights, recipe, path, strategy):
    one, other = weights(f"{recipe}.estimator.one_device"), weights(f"{recipe}.{path}.{strategy}")
    np.testing.assert_allclose(other, one, rtol=0, atol=WEIGHTS)


@pytest.mark.parametrize("recipe", RECIPES)
def test_clipping_changes_them(weights, recipe):
    assert np.abs(weights(f"{recipe}.unclipped") - weights(f"{recipe}.keras.one_device")).max() > 1e-4


@pytest.mark.parametrize("recipe", [name for name, values in RECIPES.items() if len(values) > 1])
def test_the_loss_options_change_them(weights, recipe):
    assert np.abs(weights(f"{recipe}.plain") - weights(f"{recipe}.keras.one_device")).max() > 1e-4
