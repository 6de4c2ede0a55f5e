"""The same declaration on another stack, and a folder of runs that one stack began and the other continues."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Workdir
from tests.equivalence.conftest import largest_difference, read_losses, read_weights
from tests.root import ROOT
from tests.stack import HERE, OTHER_PYTHON
from tfx_estimator.pipeline.base.stack import stacks

OTHER = os.environ.get(OTHER_PYTHON, "")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not OTHER, reason=f"{OTHER_PYTHON} names no Python of another stack"),
]

HALF, WHOLE = 100, 200
BEFORE = ("TfdsExampleGen", "ImageSchemaGen", "StatisticsGen", "ExampleValidator", "Transform")
SAME = "the Trainer's key is the same"
PATHS = ("estimator", "keras", "keras_custom_loop")
TWO_DEVICES = {"devices.cpu": 2}
STRATEGIES = {
    "one_device": {},
    "mirrored": TWO_DEVICES,
    "central_storage": TWO_DEVICES,
    "multi_worker_mirrored": {},
    # One does the steps: on a Keras path the chief only schedules them.
    "parameter_server": {"workers": 1},
}
DATA = ("digits", "mnist")
NORMALISED = Path(__file__).with_name("crossing") / "normalised.yaml"


@pytest.fixture(params=["to the other", "from the other"])
def workdirs(request, tmp_path) -> tuple[Workdir, Workdir]:
    """One folder for the stack that begins and the one that continues."""
    here, other = Workdir(tmp_path / "runs"), Workdir(tmp_path / "runs", OTHER)
    return (here, other) if request.param == "to the other" else (other, here)


def train(workdir: Workdir, path: str, steps: int, declaration: str = "digits", **changed: object) -> str:
    """Runs a declaration with a learning rate that does not depend on the number of steps."""
    changed |= {"trainer.path": path, "trainer.train_steps": steps, "trainer.optimizer.schedule": "constant"}
    sets = [part for name, value in changed.items() for part in ("--set", f"{name}={value}")]
    return workdir.run(declaration, *sets, seconds=600)


@pytest.fixture(scope="module")
def alike(tmp_path_factory) -> tuple[Workdir, Workdir]:
    """A folder for each stack, in which the data is ingested once."""
    folder = tmp_path_factory.mktemp("alike")
    return Workdir(folder / "here"), Workdir(folder / "other", OTHER)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("data", DATA)
def test_both_stacks_train_alike(alike, real_data_dir, data, strategy, path):
    wanted = {"strategy": strategy, **STRATEGIES[strategy]}
    if strategy == "parameter_server" and path != "estimator":
        wanted["workers"] = 2
    changed = {f"trainer.distribution.train.{name}": value for name, value in wanted.items()}
    changed |= {"trainer.log_every_steps": 1, "trainer.distribution.evaluator": strategy == "multi_worker_mirrored"}
    if data == "mnist":
        changed["data.data_dir"] = real_data_dir
    losses, accuracies = [], []
    for workdir in alike:
        train(workdir, path, WHOLE, data, **changed)
        results = workdir.summary(data)
        assert results["blessed"]
        assert Path(results["pushed"], "saved_model.pb").exists()
        losses.append(dict(read_losses(results["model_run"])))
        accuracies.append(results["accuracy"])
    here, other = losses
    assert set(range(1, WHOLE + 1)) - set(here) == set(range(1, WHOLE + 1)) - set(other)
    apart = max(abs(here[step] - other[step]) for step in here)
    print(f"{data} {strategy} {path}: {len(here)} losses {apart:.1e} apart, accuracies {accuracies}")
    assert apart <= 1e-5
    # A coordinating chief sees the loss of each tenth step.
    assert len(here) >= WHOLE / 10


@pytest.mark.parametrize(
    ("declaration", "path", "tolerance"),
    [*(("digits", path, 1e-6) for path in PATHS), (str(NORMALISED), "estimator", 1e-4)],
    ids=[*PATHS, "a model_fn with BatchNorm"],
)
def test_one_stack_continues_the_runs_of_the_other(workdirs, tmp_path, declaration, path, tolerance):
    first, second = workdirs
    name = Path(declaration).stem
    train(first, path, HALF, declaration)
    half = first.summary(name)
    assert half["blessed"]
    shutil.copytree(first.path, tmp_path / "half")

    assert SAME in train(second, path, HALF, declaration)
    states = second.states(name)
    assert states.pop("BaselineResolver") == "resolved"
    assert set(states.values()) == {"cached"}
    assert second.summary(name)["pushed"] == half["pushed"]

    assert SAME not in train(second, path, WHOLE, declaration)
    crossed, states = second.summary(name), second.states(name)
    assert {node: states[node] for node in BEFORE} == dict.fromkeys(BEFORE, "cached")
    assert (crossed["training"]["first_step"], crossed["training"]["last_step"]) == (HALF, WHOLE)
    assert "sparse_categorical_accuracy_diff" in crossed["metrics"], "the model before was no baseline"
    assert crossed["blessed"]
    assert crossed["pushed"] != half["pushed"]
    weights = read_weights(crossed["model_run"])

    shutil.rmtree(first.path)
    Path(tmp_path / "half").rename(first.path)
    train(first, path, WHOLE, declaration)
    stayed = first.summary(name)
    assert stayed["training"]["first_step"] == HALF
    apart = largest_difference(read_weights(stayed["model_run"]), weights)
    print(f"{name} {path}: {len(weights)} weights {apart:.1e} apart")
    assert apart <= tolerance


def test_a_training_moves_from_the_older_stack_to_todays_and_to_keras(tmp_path):
    older, newer = (OTHER, sys.executable) if HERE is stacks.TODAY else (sys.executable, OTHER)
    before, after = Workdir(tmp_path / "runs", older), Workdir(tmp_path / "runs", newer)

    def convert(python: str, output: str, to: str = "keras2") -> dict:
        words = ["convert", str(tmp_path / "runs" / "digits"), "--to", to, "--output", str(tmp_path / output)]
        subprocess.run([python, "-m", "tfx_estimator", *words], cwd=ROOT, check=True)
        proof = json.loads((tmp_path / output / "proof.json").read_text())
        assert proof["holds"]
        assert max(proof["logits"].values()) <= 1e-6
        assert not proof["wrong"]
        return proof

    train(before, "estimator", HALF)
    convert(older, "of the older")
    # From here without the older stack: the Estimator continues, and is converted to Keras in mid-run.
    train(after, "estimator", WHOLE)
    assert after.summary("digits")["training"]["first_step"] == HALF
    stayed = after.summary("digits")["accuracy"]
    convert(newer, "keras 2")
    proof = convert(newer, "keras 3", "keras3")
    assert set(proof["logits"]) == {"estimator", "exported model", "keras 3"}
    # The older stack's conversion continues here to the Estimator's last step.
    after.run(str(tmp_path / "of the older" / "new.yaml"), seconds=600)
    moved = after.summary("digits")
    assert (moved["training"]["first_step"], moved["training"]["last_step"]) == (HALF, WHOLE)
    assert moved["accuracy"] == pytest.approx(stayed, abs=1e-4)
