"""Every path starts from the weights that a network's function loads, and keeps a layer's assignments alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.equivalence.conftest import read_weights

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

MIRRORED = {"strategy": "mirrored", "devices": {"cpu": 2}}
SGD = {"name": "sgd", "learning_rate": 0.01, "schedule": "constant"}
STEPS = 4


@pytest.fixture
def weights(train):
    """Trains a network; returns its variables by the ends of their names."""

    def run(model: str, path: str = "estimator", steps: int = STEPS, strategy: Any = "one_device", **section: Any):
        section = {"optimizer": SGD, "distribution": {"train": strategy, "max_restarts": 0}, **section}
        _, run = train(path, steps, model=f"{model}:network", **section)
        return {"/".join(name.split("/")[-2:]): value for name, value in read_weights(run.uri).items()}

    return run


@pytest.fixture
def given(weights):
    """Does the same with the network that loads weights."""

    def run(steps: int = STEPS, frozen: bool = True, normalised: bool = True, **section: Any):
        return weights("weights_given", steps=steps, params={"frozen": frozen, "normalised": normalised}, **section)

    return run


def _given() -> dict[str, np.ndarray]:
    from tests.components.trainer.user import weights_given

    return weights_given.weights()


@pytest.mark.parametrize("other", ["keras", pytest.param("keras_custom_loop", marks=pytest.mark.long)])
def test_every_path_starts_from_them_and_trains(given, other):
    found = [given(frozen=False, path=path) for path in ("estimator", other)]
    for name, begun in _given().items():
        # They moved, and not far.
        assert 0 < np.abs(found[0][name] - begun).max() < 0.5, name
        np.testing.assert_allclose(found[1][name], found[0][name], rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.long
def test_a_frozen_part_stays_as_loaded_under_replicas_and_after_a_restart(given):
    begun, gone_on = (given(steps, strategy=MIRRORED) for steps in (2, 4))
    for name, value in _given().items():
        np.testing.assert_array_equal(begun[name], value, err_msg=name)
        np.testing.assert_array_equal(gone_on[name], value, err_msg=name)
    assert np.abs(gone_on["logits/kernel"] - begun["logits/kernel"]).max() > 0


@pytest.mark.long
def test_a_resumed_training_does_not_start_from_them_again(given):
    found = [given(steps, frozen=False)["feat/kernel"] for steps in (2, 4)]
    half, whole = (np.abs(each - _given()["feat/kernel"]).max() for each in found)
    assert whole > 1.3 * half > 0


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["central_storage", "multi_worker_mirrored:2", "parameter_server:2"])
def test_every_strategy_starts_from_them(given, strategy):
    central = strategy == "central_storage"
    train_on = {"strategy": strategy, "devices": {"cpu": 2}} if central else strategy
    # An Estimator does not support Keras's normalisation in a functional model under central_storage.
    found = given(normalised=not central, strategy=train_on)
    expected = [name for name in _given() if name in found]
    assert len(expected) == (2 if central else 6)
    for name in expected:
        np.testing.assert_array_equal(found[name], _given()[name], err_msg=name)


@pytest.mark.long
def test_a_declared_start_comes_first(training, given):
    other = given(2, frozen=False, optimizer={**SGD, "learning_rate": 0.1})
    folder = str(training.root / "model_run" / str(training.executions))
    still = {"name": "momentum", "schedule": "piecewise", "boundaries": [1], "values": [0, 0]}
    begun = given(2, frozen=False, optimizer=still, seed=5, warm_start={"checkpoint": folder})
    np.testing.assert_array_equal(begun["feat/kernel"], other["feat/kernel"])
    assert np.abs(begun["feat/kernel"] - _given()["feat/kernel"]).max() > 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("paths", "section", "count"),
    [
        (("estimator", "keras", "keras_custom_loop"), {}, STEPS),
        (("estimator", "keras"), {"strategy": MIRRORED}, STEPS),
        # With microbatches.
        (("estimator", "keras"), {"gradient_accumulation": 2}, 2 * STEPS),
    ],
)
def test_every_path_keeps_a_counter_and_an_average_that_a_layer_assigns(weights, paths, section, count):
    first, *others = [weights("keeps_state", path, **section) for path in paths]
    assert [each["keeps/count"] for each in (first, *others)] == [count] * len(paths)
    assert np.abs(first["keeps/average"]).max() > 0.01
    for other in others:
        for name in ("keeps/count", "keeps/average", "logits/kernel", "logits/bias"):
            np.testing.assert_allclose(other[name], first[name], rtol=0, atol=1e-5, err_msg=name)
