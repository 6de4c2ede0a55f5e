"""Batch normalisation and dropout: which layers train equally under every strategy, and which do not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.equivalence.conftest import MULTI_WORKER, ONE_DEVICE, largest_difference, regularised
from tests.equivalence.train_layers import CASES, STEPS

pytestmark = [pytest.mark.equivalence, pytest.mark.long, pytest.mark.timeout(300)]

# Absolute tolerance. All is float64 except the loss, whose last bit is 1e-7.
LOSS, WEIGHTS = 1e-6, 1e-9
# Keras rounds the factor of the moving averages to float32.
KERAS_AVERAGES = 1e-7


@pytest.fixture(scope="module")
def outcome(apart):
    """Returns losses and weights of a case under a strategy; one process trains all."""

    def read(case: str, strategy: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        values = dict(np.load(apart("train_layers") / f"{case}.{strategy}.npz"))
        losses = values.pop("losses")
        assert len(losses) == STEPS
        return losses, values

    return read


@pytest.mark.parametrize("strategy", ["mirrored", "central_storage"])
@pytest.mark.parametrize("case", ["cifar_cnn", "synchronized_norm", "stateless_dropout"])
def test_two_devices_train_like_one(outcome, case, strategy):
    one, other = outcome(case, "one_device"), outcome(case, strategy)
    assert one[0][-5:].mean() < one[0][:5].mean()
    np.testing.assert_allclose(other[0], one[0], rtol=0, atol=LOSS)
    assert largest_difference(one[1], other[1]) <= WEIGHTS


@pytest.mark.parametrize("case", ["keras_norm", "keras_dropout"])
def test_keras_own_layers_do_not(outcome, case):
    one, other = outcome(case, "one_device"), outcome(case, "mirrored")
    assert np.abs(one[0] - other[0]).max() > 0.01
    assert largest_difference(one[1], other[1]) > 0.001


def test_synchronized_normalisation_equals_keras_on_one_device(outcome):
    keras, ours = outcome("keras_norm", "one_device"), outcome("synchronized_norm", "mirrored")
    assert CASES["keras_norm"][0]["norm"] != CASES["synchronized_norm"][0]["norm"]
    np.testing.assert_allclose(ours[0], keras[0], rtol=0, atol=LOSS)
    assert largest_difference(keras[1], ours[1]) <= KERAS_AVERAGES


def test_two_workers_train_like_one_device(trainings):
    one, two = trainings.run(regularised(ONE_DEVICE), regularised(MULTI_WORKER))
    assert one.loss(one.steps[-1]) < one.loss(one.steps[0]) - 0.5
    two.assert_losses_of(one, 60, LOSS)
    assert largest_difference(one.weights, two.weights) <= WEIGHTS
    # The exporter normalises by the moving averages.
    assert two.metric("eval_average_loss") == pytest.approx(one.metric("eval_average_loss"), abs=LOSS)
