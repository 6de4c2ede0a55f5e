"""`trainer.deterministic: true`: two runs end with equal bits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.equivalence.conftest import MULTI_WORKER, ONE_DEVICE

pytestmark = [pytest.mark.equivalence, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("train", "data", "network"),
    [
        (ONE_DEVICE, "cifar10 exact", {"model": "cifar_cnn"}),
        # Keras's own dropout: random operations want a seed under determinism.
        pytest.param(
            MULTI_WORKER,
            "mnist",
            {"model": "own_networks:regularised", "params": {"norm": "keras", "dropout": "keras"}},
            marks=pytest.mark.long,
        ),
    ],
    ids=["one_device", "multi_worker_mirrored"],
)
def test_two_runs_end_with_equal_bits(trainings, train, data, network):
    # With TensorFlow's own number of threads, among which sums could be split differently from run to run.
    declared = {"data": data, "deterministic": True, "distribution": {"train": train, "max_restarts": 0}, **network}
    first, second = trainings.run({**declared, "name": "first"}, {**declared, "name": "second"})
    assert first.model != second.model
    assert first.losses == second.losses
    assert sorted(first.weights) == sorted(second.weights)
    for name, value in first.weights.items():
        np.testing.assert_array_equal(value, second.weights[name], err_msg=name)
