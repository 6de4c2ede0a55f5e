"""Each strategy end to end on the real MNIST, with the pipeline's other components: the accuracy of one device."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Workdir

pytestmark = [pytest.mark.e2e, pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(400)]

POINTS = 0.005
TRAIN = "trainer.distribution.train"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, real_data_dir: str):
    """Runs the mnist preset in one folder, so that the data is ingested once."""
    workdir = Workdir(tmp_path_factory.mktemp("strategies"))

    def run(train_steps: int = 400, **overrides: str) -> dict:
        steps = ("--set", f"trainer.train_steps={train_steps}", "--set", f"data.data_dir={real_data_dir}")
        settings = [part for key, value in overrides.items() for part in ("--set", f"{key.replace('__', '.')}={value}")]
        workdir.run("mnist", *steps, *settings, seconds=380)
        return workdir.summary("mnist")

    return run


@pytest.fixture(scope="module")
def one_device(shared) -> dict:
    """The results that all others are compared with."""
    results = shared()
    assert results["accuracy"] > 0.95
    return results


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param({"train__strategy": "multi_worker_mirrored", "evaluator": "true"}, id="multi_worker_mirrored"),
        pytest.param({"train__strategy": "mirrored", "train__devices__cpu": "2"}, id="mirrored"),
        pytest.param(
            {"train__strategy": "central_storage", "train__devices__cpu": "2"},
            id="central_storage",
        ),
        pytest.param(
            {
                "train__strategy": "mirrored",
                "train__devices__cpu": "2",
                "eval__strategy": "mirrored",
                "eval__devices__cpu": "2",
            },
            id="mirrored both",
        ),
    ],
)
def test_a_strategy_reaches_the_accuracy_of_one_device(shared, one_device, overrides):
    results = shared(**{f"trainer__distribution__{key}": value for key, value in overrides.items()})
    assert results["accuracy"] == pytest.approx(one_device["accuracy"], abs=POINTS)
    assert results["evaluated"] == 10_000
    states = {run["node"]: run["state"] for run in results["components"]}
    assert states["TfdsExampleGen"] == "cached"
    assert states["Trainer"] == "ran"
    assert results["training"]["last_step"] == 400
    assert Path(results["pushed"], "saved_model.pb").exists()


def test_parameter_servers_reach_the_accuracy_of_one_device(shared):
    # Asynchronous gradients are a step old, which acts as more momentum: they need the preset's steps, and a warm-up.
    one_device = shared(train_steps=2000)
    results = shared(
        train_steps=2000,
        trainer__distribution__train__strategy="parameter_server",
        trainer__optimizer__warmup_steps="200",
    )
    assert results["accuracy"] == pytest.approx(one_device["accuracy"], abs=POINTS)
    assert 2000 <= results["training"]["last_step"] <= 2002
