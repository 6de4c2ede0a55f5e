"""Batch normalisation and dropout: which layers train equally under every strategy, and which do not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.equivalence.conftest import MULTI_WORKER, ONE_DEVICE, largest_difference
from tests.equivalence.train_layers import CASES, STEPS

pytestmark = [pytest.mark.equivalence, pytest.mark.long, pytest.mark.timeout(300)]

# Absolute tolerance. All is float64 except the loss, whose last bit is 1e-7.
LOSS, WEIGHTS = 1e-6, 1e-9
# Keras rounds the factor of the moving averages to float32.
KERAS_AVERAGES = 1e-7


@pytest.fixture(scope="module")
def outcome(train_apart, tmp_path_factory: pytest.TempPathFactory):
    """Returns losses and weights of a case under a strategy; one process trains all."""
    folder = tmp_path_factory.mktemp("layers")
    train_apart("train_layers", folder)

    def read(case: str, strategy: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        values = dict(np.load(folder / f"{case}.{strategy}.npz"))
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
    params = {"network": "regularised", "norm": "synchronized", "dropout": "stateless"}
    one, two = trainings.run(
        *(
            {
                "data": "mnist exact",
                "model": "own_networks:in_float64",
                "params": params,
                "global_batch_size": 32,
                "intra_op_threads": 1,
                "distribution": {"train": train, "max_restarts": 0},
            }
            for train in (ONE_DEVICE, MULTI_WORKER)
        )
    )
    assert one.steps == two.steps
    assert one.loss(one.steps[-1]) < one.loss(one.steps[0]) - 0.5
    np.testing.assert_allclose([two.loss(s) for s in two.steps], [one.loss(s) for s in one.steps], rtol=0, atol=LOSS)
    assert largest_difference(one.weights, two.weights) <= WEIGHTS
    # The exporter normalises by the moving averages.
    assert two.metric("eval_average_loss") == pytest.approx(one.metric("eval_average_loss"), abs=LOSS)
