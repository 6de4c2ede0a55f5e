"""A network whose function gives it weights begins with them on every path, under replicas too, and once only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.components.trainer.conftest import Training
from tests.equivalence.conftest import read_weights

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

HERE = Path(__file__).resolve().parent
MIRRORED = {"train": {"strategy": "mirrored", "devices": {"cpu": 2}}}
SGD = {"name": "sgd", "learning_rate": 0.01, "schedule": "constant"}
PATHS = ("estimator", "keras", "keras_custom_loop")


@pytest.fixture
def train(training, settings, monkeypatch):
    """Trains the network; returns its weights, by the ends of their names."""
    monkeypatch.syspath_prepend(str(HERE / "user"))

    def run(steps: int, frozen: bool = True, **trainer: Any) -> dict[str, np.ndarray]:
        return _by_layer(_train(training, settings, steps, frozen, **trainer))

    return run


def _train(training: Training, settings: Any, steps: int, frozen: bool, **trainer: Any) -> str:
    section = {
        "model": "weights_given:network",
        "params": {"frozen": frozen},
        "train_steps": steps,
        "optimizer": SGD,
        "distribution": {"max_restarts": 0},
        **trainer,
    }
    _, run = training.run(settings(trainer=section, path=section.get("path", "estimator")), steps)
    return run.uri


def _by_layer(folder: str) -> dict[str, np.ndarray]:
    return {"/".join(name.split("/")[-2:]): value for name, value in read_weights(folder).items()}


def _given() -> dict[str, np.ndarray]:
    from tests.components.trainer.user import weights_given

    return weights_given.weights()


def test_every_path_begins_with_them_and_trains_on(train):
    found = [train(4, frozen=False, path=path) for path in PATHS]
    for name, given in _given().items():
        # They moved, and not far.
        assert 0 < np.abs(found[0][name] - given).max() < 0.5, name
        for other in found[1:]:
            np.testing.assert_allclose(other[name], found[0][name], rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.long
def test_a_frozen_part_stays_as_loaded_under_replicas_and_after_a_restart(train):
    begun = train(2, distribution={**MIRRORED, "max_restarts": 0})
    gone_on = train(4, distribution={**MIRRORED, "max_restarts": 0})
    for name, given in _given().items():
        np.testing.assert_array_equal(begun[name], given, err_msg=name)
        np.testing.assert_array_equal(gone_on[name], given, err_msg=name)
    assert np.abs(gone_on["logits/kernel"] - begun["logits/kernel"]).max() > 0


@pytest.mark.long
def test_a_training_that_goes_on_does_not_begin_with_them_again(train):
    half = train(2, frozen=False)
    whole = train(4, frozen=False)
    moved = [np.abs(each["feat/kernel"] - _given()["feat/kernel"]).max() for each in (half, whole)]
    assert moved[1] > 1.3 * moved[0] > 0


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["central_storage", "multi_worker_mirrored:2", "parameter_server:2"])
def test_every_strategy_begins_with_them(train, strategy):
    central = strategy == "central_storage"
    train_on = {"strategy": strategy, "devices": {"cpu": 2}} if central else strategy
    # Keras's normalisation in a functional model is nothing that an Estimator has under central_storage.
    found = train(4, params={"normalised": not central}, distribution={"train": train_on, "max_restarts": 0})
    expected = [name for name in _given() if name in found]
    assert len(expected) == (2 if central else 6)
    for name in expected:
        np.testing.assert_array_equal(found[name], _given()[name], err_msg=name)


@pytest.mark.long
def test_a_declared_start_comes_first(training, settings, train):
    other = train(2, frozen=False, optimizer={**SGD, "learning_rate": 0.1})
    folder = str(training.root / "model_run" / str(training.executions))
    still = {"name": "momentum", "schedule": "piecewise", "boundaries": [1], "values": [0, 0]}
    begun = train(2, frozen=False, optimizer=still, seed=5, warm_start={"checkpoint": folder})
    np.testing.assert_array_equal(begun["feat/kernel"], other["feat/kernel"])
    assert np.abs(begun["feat/kernel"] - _given()["feat/kernel"]).max() > 0
