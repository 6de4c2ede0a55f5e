"""A compiled pipeline, executed on this machine from its file to a blessed and pushed model."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from google.cloud.aiplatform_v1.types import PipelineJob

from tests.e2e.conftest import states_of
from tests.examples import copy_example, edit
from tests.faults.file_operations import Forks
from tests.pipeline.platforms.vertex.pipeline_service import PipelineService
from tests.pipeline.runners.deployed import COMMON, OF_TARGET
from tests.waiting import wait_until
from tfx_estimator.__main__ import main
from tfx_estimator.pipeline.platforms.registry import KUBEFLOW, VERTEX
from tfx_estimator.pipeline.platforms.vertex import service as vertex

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


class Rehearsal:
    """A declaration's compiled file, and its executions."""

    def __init__(self, folder: Path, target: str = VERTEX) -> None:
        self.folder = folder
        self.target = target
        self.root = folder / "root"
        self.file = folder / f"compiled.{'json' if target == VERTEX else 'yaml'}"

    def compile(self, source: str, *overrides: str) -> None:
        options = [word for each in (*COMMON, *OF_TARGET[self.target], *overrides) for word in ("--set", each)]
        arguments = ["compile", source, "--target", self.target, "--output", str(self.file), "--force", *options]
        assert main(arguments) == 0

    def start(self, *arguments: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "tfx_estimator", "execute", str(self.file), "--root", str(self.root), "--json"]
        return subprocess.Popen(
            [*command, *arguments], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def execute(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        return self.finish(self.start(*arguments), code)

    def execute_forked(self, forks: Forks, *arguments: str, fresh: int = 1) -> dict[str, Any]:
        """Executes with forked containers after the first `fresh` ones: each is seconds shorter."""
        output = forks.run(["execute", str(self.file), "--root", str(self.root), "--json", *arguments], "", fresh)
        assert "Traceback" not in output
        return json.JSONDecoder().raw_decode(output, output.index("{"))[0]

    def finish(self, started: subprocess.Popen, code: int = 0) -> dict[str, Any]:
        try:
            stdout, stderr = started.communicate(timeout=500)
        finally:
            started.terminate()
            started.wait()
        assert started.returncode == code, stderr
        assert "Traceback" not in stderr
        return json.loads(stdout)


def _as_vertex_describes(root: Path) -> list[dict[str, Any]]:
    """Returns an execution's outputs in the form of a Vertex AI pipeline job."""
    details: list[dict[str, Any]] = []
    for path in sorted(root.rglob("executions/*.json")):
        record = json.loads(path.read_text())
        outputs = {
            key: {
                "artifacts": [
                    {
                        "name": artifact["name"],
                        "uri": artifact["uri"],
                        "schema_title": yaml.safe_load(artifact["type"]["instanceSchema"])["title"],
                        "metadata": artifact["metadata"],
                    }
                ]
            }
            for key, artifact in record["outputs"].items()
        }
        details.append({"task_name": record["task"], "state": "SUCCEEDED", "outputs": outputs})
    return [*details, {"task_name": "BaselineResolver-model-resolver", "state": "SUCCEEDED"}]


def test_digits_executed_from_the_compiled_file_is_the_local_run(digits_run, forks, tmp_path, monkeypatch, capfd):
    rehearsal = Rehearsal(tmp_path)
    rehearsal.compile("digits")
    results, local = rehearsal.execute_forked(forks, "--require-blessing"), digits_run.summary
    assert {name for name, state in states_of(results).items() if state == "resolved"} == {
        "BaselineResolver-model-blessing-resolver",
        "BaselineResolver-model-resolver",
    }
    assert {*states_of(results).values()} == {"ran", "resolved"}
    assert results["accuracy"] == pytest.approx(local["accuracy"], abs=1e-6)
    assert results["loss"] == pytest.approx(local["loss"], rel=1e-4)
    for name in ("examples", "dataset", "label_names", "evaluated"):
        assert results[name] == json.loads(json.dumps(local[name])), name
    assert results["training"]["last_step"] == local["training"]["last_step"] == 600
    home = rehearsal.root / "digits"
    assert Path(results["pushed"]).parent == home / "serving"
    assert (Path(results["pushed"]) / "saved_model.pb").exists()
    assert Path(results["model_run"]).is_relative_to(home / "artifacts" / "local" / "digits-1")
    # A completed training leaves only the note of its move.
    assert {path.suffix for path in (home / "training").iterdir()} == {".moved"}
    # `submit --attach` shows the same table from the service's description of the same artifacts.
    details = _as_vertex_describes(rehearsal.root)
    job = "projects/a/locations/b/pipelineJobs/c"
    with PipelineService(["PIPELINE_STATE_SUCCEEDED"], details=details) as service:
        service.jobs[job] = PipelineJob(name=job)
        monkeypatch.setattr(vertex, "client_of", service.client)
        capfd.readouterr()
        assert main(["submit", "--attach", job]) == 0
        shown = capfd.readouterr().out
        assert "training      steps 0 to 600 in " in shown
        assert f"accuracy      {results['accuracy']:.4f} on {results['evaluated']} examples, mean loss" in shown
        assert "blessed       yes" in shown
        assert f"pushed model  {results['pushed']}" in shown
        assert "logs          https://console.cloud.google.com/vertex-ai/" in shown
        assert "elapsed       1 h 02 min" in shown
        # Without access to the bucket, the table has the service's own information.
        (evaluation,) = [each["outputs"]["evaluation"] for each in details if each["task_name"] == "Evaluator"]
        evaluation["artifacts"][0]["uri"] = str(tmp_path / "elsewhere")
        assert main(["submit", "--attach", job]) == 0
        shown = capfd.readouterr().out
        assert f"Evaluator: {tmp_path / 'elsewhere'} cannot be read from here: " in shown
        assert "blessed       yes" in shown
        assert "training      steps 0 to 600 in " in shown


def _ran(results: dict[str, Any]) -> set[str]:
    return {name for name, state in states_of(results).items() if state == "ran"}


@pytest.mark.long  # tests/components/baseline_finder and tests/pipeline/platforms/rehearsal have its parts
def test_without_resolvers_the_second_model_is_compared_with_the_first_one(forks, tmp_path):
    rehearsal = Rehearsal(tmp_path, KUBEFLOW)
    few = ("trainer.train_steps=60", "evaluator.min_accuracy=0.2", "evaluator.max_accuracy_drop=0.001")
    rehearsal.compile("digits", *few)
    first = rehearsal.execute_forked(forks, "--require-blessing", fresh=0)
    assert "sparse_categorical_accuracy_diff" not in first["metrics"]
    # It is trained less: above the minimum, and worse than the first one.
    rehearsal.compile("digits", *few, "trainer.train_steps=20")
    second = rehearsal.execute_forked(forks, fresh=0)
    assert _ran(second) == {"BaselineFinder", "Trainer", "Evaluator", "Pusher"}
    lost = second["accuracy"] - first["accuracy"]
    assert second["metrics"]["sparse_categorical_accuracy_diff"] == pytest.approx(lost, abs=1e-6)
    assert second["accuracy"] > 0.2
    assert (second["blessed"], second["pushed"]) == (False, None)


@pytest.mark.long
@pytest.mark.parametrize("target", [VERTEX, KUBEFLOW])
def test_a_second_execution_is_cached(tmp_path, target):
    rehearsal = Rehearsal(tmp_path, target)
    rehearsal.compile("digits")
    first, second = rehearsal.execute(), rehearsal.execute()
    again = _ran(second)
    # TFX's own resolver finds the candidate itself as the baseline: to the service, another input.
    assert again == ({"Evaluator", "Pusher"} if target == VERTEX else {"BaselineFinder"})
    assert second["accuracy"] == first["accuracy"]
    assert second["blessed"] is True
    # In a new evaluation, Beam adds up in another order.
    assert second["metrics"] == pytest.approx(first["metrics"], rel=1e-6 if again else 0, abs=0)
    itself = "the latest blessed model is the candidate itself" if target == VERTEX else None
    assert (first["baseline_dropped"], second["baseline_dropped"]) == (None, itself)
    assert second["warnings"] == []
    # The version exists already.
    assert [str(path) for path in (rehearsal.root / "digits" / "serving").iterdir()] == [first["pushed"]]
    if target == VERTEX:
        assert {*states_of(third := rehearsal.execute()).values()} == {"cached", "resolved"}
        assert third["accuracy"] == first["accuracy"]


@pytest.mark.long
@pytest.mark.parametrize("target", [VERTEX, KUBEFLOW])
def test_a_tuning_is_executed_and_its_best_values_train_the_model(tmp_path, target):
    rehearsal = Rehearsal(tmp_path, target)
    tune = "tune={max_trials: 2, train_steps: 60, ranges: {trainer.optimizer.learning_rate: [0.000001, 0.01]}}"
    rehearsal.compile("digits", "trainer.train_steps=200", tune)
    results = rehearsal.execute()
    assert states_of(results)["Tuner"] == "ran"
    (best,) = [each for each in results["tuning"]["trials"] if each["number"] == results["tuning"]["best"]]
    assert best["values"] == {"trainer.optimizer.learning_rate": 0.01}
    declared = json.loads((Path(results["model_run"]) / "declaration.json").read_text())
    assert declared["trainer"]["optimizer"]["learning_rate"] == 0.01
    assert results["accuracy"] > 0.8
    # The folder that a retry resumes from is next to the jobs, and no longer claimed.
    (folder,) = (rehearsal.root / "digits" / "tuning").iterdir()
    assert results["tuning"]["folder"] == str(folder)
    again = states_of(rehearsal.execute())
    assert (again["Tuner"], again["Trainer"]) == ("cached", "cached")


def _container(started: subprocess.Popen, module: str) -> psutil.Process:
    def find() -> psutil.Process | None:
        assert started.poll() is None, started.communicate()[1]
        for process in psutil.Process(started.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if module in process.cmdline() and "--executor_class_path" in process.cmdline():
                    return process
        return None

    return wait_until(find, f"a container of {module}", 300, every=0.2)


def _wait_for_checkpoint(started: subprocess.Popen, training: Path, seconds: float) -> None:
    """Waits until a training has written a checkpoint of a step after the first."""

    def is_there() -> bool:
        assert started.poll() is None, started.communicate()[1]
        return any(training.glob("*/model.ckpt-[1-9]*.index"))

    wait_until(is_there, f"a checkpoint in {training}", seconds, every=0.05)


@pytest.mark.long
def test_a_killed_trainer_is_retried_and_resumes(tmp_path):
    rehearsal = Rehearsal(tmp_path)
    rehearsal.compile("digits", "trainer.save_checkpoints_steps=100")
    started = rehearsal.start()
    try:
        process = _container(started, "tfx_estimator.components.trainer.executor.Executor")
        _wait_for_checkpoint(started, rehearsal.root / "digits" / "training", 200)
        process.kill()
    except BaseException:
        started.kill()
        raise
    results = rehearsal.finish(started)
    assert {*states_of(results).values()} == {"ran", "resolved"}
    assert [each["text"] for each in results["warnings"]] == ["its container ended by SIGKILL: try 2 of 4"]
    assert results["training"]["first_step"] >= 100
    assert results["training"]["last_step"] == 600
    assert results["blessed"] is True
    assert (Path(results["pushed"]) / "saved_model.pb").exists()


@pytest.mark.long
def test_a_killed_execution_resumes_when_started_again(tmp_path):
    rehearsal = Rehearsal(tmp_path)
    rehearsal.compile("digits", "trainer.save_checkpoints_steps=100")
    started = rehearsal.start()
    family: list[psutil.Process] = []
    try:
        _wait_for_checkpoint(started, rehearsal.root / "digits" / "training", 400)
    finally:
        family += [psutil.Process(started.pid), *psutil.Process(started.pid).children(recursive=True)]
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        started.communicate()
    psutil.wait_procs(family, 20)
    results = rehearsal.execute("--require-blessing")
    # In another job's folders: the training folder does not depend on the job.
    assert Path(results["model_run"]).is_relative_to(rehearsal.root / "digits" / "artifacts" / "local" / "digits-2")
    assert _ran(results) == {"Trainer", "Evaluator", "Pusher"}
    assert results["training"]["first_step"] >= 100
    assert results["training"]["last_step"] == 600


@pytest.mark.long
def test_a_module_file_is_packed_and_an_edited_one_trains_again(tmp_path):
    project = copy_example("module-file", tmp_path)
    rehearsal = Rehearsal(tmp_path / "compiled", KUBEFLOW)
    rehearsal.folder.mkdir()
    options = [word for each in (*COMMON, *OF_TARGET[KUBEFLOW]) for word in ("--set", each)]
    compile_it = [sys.executable, "-m", "tfx_estimator", "compile", "module-file.yaml", "--target", KUBEFLOW, *options]

    def recompile() -> None:
        # In its own process: other tests have modules of the same names.
        command = [*compile_it, "--output", str(rehearsal.file), "--force"]
        subprocess.run(command, cwd=project, check=True, capture_output=True, timeout=120)

    recompile()
    first = rehearsal.execute()
    assert {*states_of(first).values()} == {"ran"}
    edit(project / "my_trainer.py", "0.01", "0.02")
    recompile()
    # Only the packed modules can be imported.
    shutil.rmtree(project)
    again = rehearsal.execute()
    # Without analyzers, TFX writes no analyzer cache, which a rehearsal looks for.
    assert _ran(again) - {"Transform"} == {"Trainer", "Evaluator", "Pusher"}
    assert again["pushed"] != first["pushed"]


MNIST = """\
name: mnist
data: {dataset: mnist}
trainer: {model: "networks:mine", train_steps: 1000, global_batch_size: 128, optimizer: {learning_rate: 0.05}}
evaluator: {min_accuracy: 0.97}
"""
MINE = """\
import tensorflow as tf
from tfx_estimator.model_fn.networks import mnist_cnn

def mine(num_classes):
    return {}
"""


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_the_whole_mnist_is_as_accurate_as_on_the_local_runner(workdir, tmp_path, real_data_dir, monkeypatch):
    # The default folder of a step: the compiled file names no folder of this machine.
    monkeypatch.setenv("TFDS_DATA_DIR", real_data_dir)
    (declaration := tmp_path / "mine.yaml").write_text(MNIST)
    (tmp_path / "networks.py").write_text(MINE.format("mnist_cnn(num_classes)"))
    rehearsal = Rehearsal(tmp_path)
    rehearsal.compile(str(declaration))
    results = rehearsal.execute("--require-blessing")
    workdir.run(str(declaration))
    local = workdir.summary("mnist")
    assert results["examples"] == local["examples"] == {"train": 60_000, "eval": 10_000}
    assert results["accuracy"] == pytest.approx(local["accuracy"], abs=1e-4)
    assert (Path(results["pushed"]) / "saved_model.pb").exists()
    # Again: TFX's resolver takes the candidate as its own baseline, once.
    assert _ran(rehearsal.execute()) == {"Evaluator", "Pusher"}
    assert _ran(rehearsal.execute()) == set()
    (tmp_path / "networks.py").write_text(MINE.format("tf.keras.Sequential([mnist_cnn(num_classes)])"))
    rehearsal.compile(str(declaration))
    edited = rehearsal.execute()
    assert _ran(edited) == {"Trainer", "Evaluator", "Pusher"}
    assert "sparse_categorical_accuracy_diff" in edited["metrics"]


@pytest.mark.long
def test_a_data_set_on_a_volume_is_read_where_it_is_mounted(workdir, tmp_path, real_data_dir):
    overrides = ("trainer.train_steps=1000", "evaluator.min_accuracy=0.97", f"data.data_dir={real_data_dir}")
    rehearsal = Rehearsal(tmp_path, KUBEFLOW)
    rehearsal.compile("mnist", *overrides, f"deploy.volumes=[{{claim: data, path: {real_data_dir}}}]")
    results = rehearsal.execute("--require-blessing")
    workdir.run("mnist", *(word for each in overrides for word in ("--set", each)))
    local = workdir.summary("mnist")
    assert results["examples"] == local["examples"] == {"train": 60_000, "eval": 10_000}
    assert results["accuracy"] == pytest.approx(local["accuracy"], abs=1e-4)
