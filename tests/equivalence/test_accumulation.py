"""`gradient_accumulation` and `parallel_parts` change the memory and speed of a step, not the weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.equivalence.conftest import (
    MULTI_WORKER,
    ONE_DEVICE,
    assert_alike,
    by_layer,
    flat_weights,
    killed_once,
    largest_difference,
)
from tests.equivalence.test_strategies import MIRRORED, STEPS, as_shipped
from tests.equivalence.train_accumulation import TRAINED

pytestmark = [pytest.mark.equivalence, pytest.mark.timeout(300)]

# Absolute tolerances: in float64, with Adam's division by small numbers; and in float32.
FLOAT64 = {"sgd": 1e-12, "more sgd": 1e-12, "adam": 1e-9, "parallel": 1e-12, "more parallel": 1e-12, "both": 1e-12}
FLOAT32 = 1e-6


@pytest.fixture(scope="module")
def weights(apart) -> Callable[[str], np.ndarray]:
    """Returns a training's weights; all trainings of a case run in one process."""
    return lambda name: flat_weights(apart("train_accumulation", name.partition(".")[0]) / f"{name}.npz")


@pytest.mark.parametrize(
    ("case", "path", "strategy"),
    [
        pytest.param(case, *where, marks=() if case == "parallel" else pytest.mark.long)
        for case in FLOAT64
        for where in TRAINED[case]
    ],
)
def test_weights_equal_those_of_whole_batches(weights, case, path, strategy):
    np.testing.assert_allclose(weights(f"{case}.{path}.{strategy}"), weights(case), rtol=0, atol=FLOAT64[case])


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["one_device", "mirrored"])
def test_normalisation_by_the_statistics_of_parts_is_the_same_on_every_path(weights, strategy):
    estimator, keras = (weights(f"norm.{path}.{strategy}") for path in ("estimator", "keras"))
    np.testing.assert_allclose(keras, estimator, rtol=0, atol=1e-12)
    assert np.abs(keras - weights("norm")).max() > 1e-4


def in_parts(path: str, train: dict[str, Any], parts: int = 3, key: str = "gradient_accumulation") -> dict[str, Any]:
    """Returns the declared trainer of `mnist_cnn`, in parts."""
    return {**as_shipped(train), "path": path, key: parts}


@pytest.mark.long
@pytest.mark.parametrize("key", ["gradient_accumulation", "parallel_parts"])
@pytest.mark.parametrize(
    ("path", "train"),
    [
        (path, train)
        for path in ("estimator", "keras", "keras_custom_loop")
        for train in (ONE_DEVICE, MIRRORED, MULTI_WORKER)
    ],
)
def test_the_unchanged_network_has_the_losses_and_weights_of_whole_batches(trainings, path, train, key):
    whole, parts = trainings.run(as_shipped(ONE_DEVICE), in_parts(path, train, key=key))
    assert_alike(whole, parts, STEPS, FLOAT32)


@pytest.mark.long
@pytest.mark.parametrize("path", ["estimator", "keras"])
def test_a_killed_worker_changes_no_later_step(trainings, tmp_path, path):
    declared = in_parts(path, MULTI_WORKER, parts=3)
    kill_at, marker = 27 if path == "estimator" else 27 * 3, tmp_path / "marker"
    before, after = trainings.run(declared, killed_once(declared, kill_at, marker))
    after.assert_killed_once(marker, STEPS)
    assert largest_difference(by_layer(before.weights), by_layer(after.weights)) <= FLOAT32


@pytest.mark.long
@pytest.mark.parametrize("path", ["estimator", "keras"])
def test_gradients_cross_the_wire_once_an_update(trainings, tmp_path, path):
    def declared(parts: int) -> dict[str, Any]:
        file = tmp_path / f"{parts}.json"
        return {**in_parts(path, MULTI_WORKER, parts), "model": "own_networks:counted", "params": {"file": str(file)}}

    trainings.run(declared(1), declared(4))
    whole, parts = (count * _bytes_a_call(tmp_path / f"{count}.json") for count in (1, 4))
    # 347,146 weights of 4 bytes, in each of two directions.
    assert whole > 2 * 347_146 * 4
    assert parts < 1.1 * whole


def _bytes_a_call(file: Path) -> float:
    counts = {int(call): count for call, count in json.loads(file.read_text()).items()}
    first, last = min(counts), max(counts)
    return (counts[last] - counts[first]) / (last - first)


@pytest.mark.long
@pytest.mark.parametrize("path", ["estimator", "keras"])
def test_parts_need_less_memory(train_apart, tmp_path, path):
    peaks = {}
    for parts in (1, 8):
        file = tmp_path / f"{parts}.json"
        train_apart("measure_memory", file, path, str(parts))
        peaks[parts] = json.loads(file.read_text())
    # 4,096 examples of cifar_cnn.
    assert peaks[8] < peaks[1] / 3, peaks
