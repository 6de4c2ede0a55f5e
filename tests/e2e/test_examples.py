"""The examples, by the commands of their README; the others are run in test_cache, test_join, test_tune and wheel."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Workdir
from tests.examples import commands, copy_example, edit
from tfx_estimator.pipeline.base.stack import stacks

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def _run(name: str, tmp_path: Path) -> tuple[Path, Workdir]:
    """Runs an example; returns its folder, and that of the runs."""
    folder = copy_example(name, tmp_path)
    workdir = Workdir(folder / "runs")
    for command in commands()[name]:
        if command[0] == "python":
            subprocess.run([sys.executable, *command[1:]], cwd=folder, check=True)
        elif command[1] == "convert":
            subprocess.run([sys.executable, "-m", "tfx_estimator", *command[1:]], cwd=folder, check=True)
        else:
            assert command[:2] == ["tfx-estimator", "run"]
            workdir.run(*command[2:], cwd=folder)
    results = workdir.summary(name)
    assert results["blessed"] is True
    assert (Path(results["pushed"]) / "saved_model.pb").is_file()
    return folder, workdir


@pytest.mark.long
def test_own_model_fn_pushes_a_blessed_model_and_continues_with_keras(tmp_path):
    folder, workdir = _run("own-model-fn", tmp_path)
    training = workdir.summary("own-model-fn")["training"]
    assert (training["first_step"], training["last_step"]) == (300, 600)
    proof = json.loads((folder / "converted" / "proof.json").read_text())
    assert proof["compared"] == "probabilities"
    assert max(proof["logits"].values()) <= 1e-6
    assert proof["chance"] == ["dropout"]


@pytest.mark.long
def test_existing_module_files_run_unchanged_and_again_after_an_edit(tmp_path):
    folder, workdir = _run("module-file", tmp_path)
    results = workdir.summary("module-file")
    assert results["accuracy"] >= 0.7
    assert results["training"]["last_step"] == 80
    edit(folder / "my_trainer.py", "0.01", "0.02")
    workdir.run("module-file.yaml", cwd=folder)
    states = workdir.states("module-file")
    assert states["Transform"] == "cached"
    assert states["Trainer"] == states["Evaluator"] == states["Pusher"] == "ran"


@pytest.mark.long  # tests/equivalence compares it with the plain script
def test_the_multi_worker_tutorial_trains_with_the_batch_of_each_replica(tmp_path):
    _, workdir = _run("multi-worker-tutorial", tmp_path)
    results = workdir.summary("multi-worker-tutorial")
    assert results["training"]["last_step"] == 200
    batch = "global batch 128: TrainSpec.input_fn makes 64 for each of 2 replicas"
    assert (results["notes"], results["warnings"]) == ([f"Trainer: {batch}"], [])


@pytest.mark.long
def test_an_image_folder_is_trained_for_epochs_and_tested_on_a_third_split(tmp_path):
    _, workdir = _run("image-folder", tmp_path)
    results = workdir.summary("image-folder")
    assert results["examples"] == {"train": 1438, "eval": 179, "test": 180}
    assert results["label_names"][:3] == ["eight", "five", "four"]
    assert (results["evaluated_split"], results["evaluated"]) == ("test", 180)
    # 9 x 1,438 examples, 64 a step.
    assert (results["training"]["train_epochs"], results["training"]["last_step"]) == (9, 203)


@pytest.mark.long  # tests/components/trainer/test_compiled_models.py trains such models on both Keras paths
def test_a_compiled_keras_model_of_two_inputs_is_pushed(tmp_path):
    folder = copy_example("own-keras-model", tmp_path)
    workdir = Workdir(folder / "runs")
    output = workdir.run("own-keras-model.yaml", cwd=folder)
    assert "compiled:compiled returns a compiled model: it is trained by its own optimizer, " in output
    assert workdir.summary("own-keras-model")["blessed"] is True


@pytest.mark.long
@pytest.mark.skipif(not stacks.current().has_eval_saved_model, reason="TFX 1.21's module has a Keras model")
def test_the_taxi_example_of_tfx_is_a_declaration(tmp_path):
    _, workdir = _run("taxi-declared", tmp_path)
    results = workdir.summary("taxi-declared")
    assert sum(results["examples"].values()) == 15_002
    assert results["metrics"]["auc"] >= 0.9
    assert len(results["slice_metrics"]["trip_start_hour"]) == 24


@pytest.mark.long  # tests/data/sources covers these cases without a pipeline
def test_an_edited_own_dataset_is_noted_and_a_damaged_one_named(tmp_path):
    folder, workdir = _run("own-dataset", tmp_path)
    edit(folder / "shapes.py", "190 * shapes", "180 * shapes")
    output = workdir.run("own-dataset.yaml", cwd=folder)
    assert "shapes:Shapes was edited since its data were prepared" in output
    assert {state for node, state in workdir.states("own-dataset").items() if node != "BaselineResolver"} == {"cached"}
    (info,) = (folder / "prepared").rglob("dataset_info.json")
    info.write_bytes(info.read_bytes()[:-9])
    output = workdir.run("own-dataset.yaml", cwd=folder, code=3)
    assert f"damaged file {info}: it cannot be parsed" in output
