"""A folder of runs is taken by another stack: what was made counts, and what was half trained goes on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.e2e.conftest import Workdir
from tests.equivalence.conftest import largest_difference, read_weights

# A command, as `python` of an environment of the other stack: it finds this project, and the same files.
OTHER = os.environ.get("TFX_ESTIMATOR_OTHER_PYTHON", "")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not OTHER, reason="TFX_ESTIMATOR_OTHER_PYTHON names no Python of another stack"),
]

HALF, WHOLE = 100, 200
BEFORE = ("TfdsExampleGen", "ImageSchemaGen", "StatisticsGen", "ExampleValidator", "Transform")
SAME = "the Trainer's key is the same"


@pytest.fixture(params=["to the other", "from the other"])
def workdirs(request, tmp_path) -> tuple[Workdir, Workdir]:
    """One folder, for the stack that begins and for the one that takes it."""
    here, other = Workdir(tmp_path / "runs"), Workdir(tmp_path / "runs", OTHER)
    return (here, other) if request.param == "to the other" else (other, here)


def train(workdir: Workdir, path: str, steps: int) -> str:
    """Runs digits with a rate that does not depend on the number of steps.

    Returns:
        What it printed.
    """
    declared = {"path": path, "train_steps": steps, "optimizer.schedule": "constant"}
    sets = [part for name, value in declared.items() for part in ("--set", f"trainer.{name}={value}")]
    return workdir.run("digits", *sets, seconds=600)


@pytest.mark.parametrize("path", ["estimator", "keras", "keras_custom_loop"])
def test_what_one_stack_made_and_trained_the_other_goes_on_with(workdirs, tmp_path, path):
    begins, takes = workdirs
    train(begins, path, HALF)
    half = begins.summary("digits")
    assert half["blessed"]
    shutil.copytree(begins.path, tmp_path / "half")

    assert SAME in train(takes, path, HALF)
    states = takes.states("digits")
    assert states.pop("BaselineResolver") == "resolved"
    assert set(states.values()) == {"cached"}
    assert takes.summary("digits")["pushed"] == half["pushed"]

    assert SAME not in train(takes, path, WHOLE)
    crossed, states = takes.summary("digits"), takes.states("digits")
    assert {node: states[node] for node in BEFORE} == dict.fromkeys(BEFORE, "cached")
    assert (crossed["training"]["first_step"], crossed["training"]["last_step"]) == (HALF, WHOLE)
    assert "sparse_categorical_accuracy_diff" in crossed["metrics"], "the model before was no baseline"
    assert crossed["blessed"]
    assert crossed["pushed"] != half["pushed"]
    weights = read_weights(crossed["model_run"])

    shutil.rmtree(begins.path)
    Path(tmp_path / "half").rename(begins.path)
    train(begins, path, WHOLE)
    stayed = begins.summary("digits")
    assert stayed["training"]["first_step"] == HALF
    assert largest_difference(read_weights(stayed["model_run"]), weights) <= 1e-6
