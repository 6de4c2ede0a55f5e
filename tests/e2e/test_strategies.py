"""Each strategy end to end on the real MNIST, with the pipeline's other components: the accuracy of one device."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Workdir, states_of

pytestmark = [pytest.mark.e2e, pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(400)]

POINTS = 0.005


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, real_data_dir: str):
    """Runs the mnist preset in one folder, so that the data is ingested once."""
    workdir = Workdir(tmp_path_factory.mktemp("strategies"))

    def run(steps: int = 400, **trainer: str) -> dict:
        overrides = {"data.data_dir": real_data_dir, "trainer.train_steps": steps}
        overrides |= {f"trainer.{name}": value for name, value in trainer.items()}
        words = [word for name, value in overrides.items() for word in ("--set", f"{name}={value}")]
        workdir.run("mnist", *words, seconds=380)
        return workdir.summary("mnist")

    return run


@pytest.fixture(scope="module")
def one_device(shared) -> dict:
    results = shared()
    assert results["accuracy"] > 0.95
    return results


@pytest.mark.parametrize(
    "distribution",
    [
        "{train: {strategy: multi_worker_mirrored}, evaluator: true}",
        "{train: 'mirrored:2'}",
        "{train: 'central_storage:2'}",
        "{train: 'mirrored:2', eval: 'mirrored:2'}",
    ],
    ids=["multi_worker_mirrored", "mirrored", "central_storage", "mirrored both"],
)
def test_a_strategy_reaches_the_accuracy_of_one_device(shared, one_device, distribution):
    results = shared(distribution=distribution)
    assert results["accuracy"] == pytest.approx(one_device["accuracy"], abs=POINTS)
    assert results["evaluated"] == 10_000
    states = states_of(results)
    assert (states["TfdsExampleGen"], states["Trainer"]) == ("cached", "ran")
    assert results["training"]["last_step"] == 400
    assert Path(results["pushed"], "saved_model.pb").exists()


def test_parameter_servers_reach_the_accuracy_of_one_device(shared):
    # Asynchronous gradients are a step old, which acts like momentum: they need the preset's steps, and a warm-up.
    one_device = shared(2000)
    served = "{train: {strategy: parameter_server}}"
    results = shared(2000, **{"distribution": served, "optimizer.warmup_steps": "200"})
    assert results["accuracy"] == pytest.approx(one_device["accuracy"], abs=POINTS)
    assert 2000 <= results["training"]["last_step"] <= 2002
