"""A compiled pipeline equals the local one, node by node, and passes the whole declaration to its steps."""

from __future__ import annotations

import dataclasses
import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import tfx_estimator
from tests.folders import write_files
from tests.pipeline.runners.deployed import (
    COMMON,
    IMAGE,
    OF_ONE_POD,
    OF_TARGET,
    REACHED,
    Step,
    read_steps,
    same,
    words,
)
from tests.stack import HERE
from tfx_estimator.__main__ import main
from tfx_estimator.components.trainer.settings import OPERATION_KEY, Settings
from tfx_estimator.components.tuner.executor import TUNE_KEY, TUNE_OPERATION_KEY, of_properties
from tfx_estimator.pipeline import presets
from tfx_estimator.pipeline.build import create_pipeline
from tfx_estimator.pipeline.config import Loaded, load
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.platforms.registry import KUBEFLOW, TARGETS, TFJOB, VERTEX
from tfx_estimator.pipeline.runners import buckets
from tfx_estimator.pipeline.runners.compiling import compile_declaration

pytestmark = pytest.mark.unit

HOME = "gs://example-bucket/pipelines/taxi"
DECLARATION = """\
name: taxi
data: {dataset: digits, splits: {train: "train[:80%]", eval: "train[80%:]"}, shards: 3}
transform: {module_file: own/prepare.py}
trainer:
  module_file: own/train.py
  train_steps: 70
  global_batch_size: 33
  keep_checkpoint_max: 9
  log_every_steps: 7
  stall_timeout: 71
  threads: {intra_op: 2}
  distribution: {max_restarts: 8}
tune: {objective: {metric: auc, mode: max}, max_trials: 4, ranges: {units: [16, 64]}, seed: 5, parallel_trials: 2}
evaluator: {min_accuracy: 0.61, max_accuracy_drop: 0.2, slices: [label]}
"""
FILES = {
    "mine.yaml": DECLARATION,
    "own/prepare.py": "def preprocessing_fn(inputs):\n    return inputs\n",
    "own/train.py": "import layers\n\ndef trainer_fn(fn_args, schema):\n"
    '    fn_args and fn_args.hyperparameters["values"]["units"]\n    return layers.make()\n',
    "own/layers.py": "import shapes.round\n\ndef make():\n    return shapes.round.SIDES\n",
    "own/shapes/__init__.py": "",
    "own/shapes/round.py": "SIDES = 1\n",
    "own/unused.py": "",
}
MODULES = {"Transform": ["prepare"], "Trainer": ["layers", "shapes", "shapes.round", "train"]}
# A trial runs the Trainer's code.
MODULES["Tuner"] = MODULES["Trainer"]


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    return write_files(tmp_path_factory.mktemp("project"), FILES)


@pytest.fixture(scope="module")
def compiled(project) -> dict[str, str]:
    """The project compiled for each target by the command line."""
    texts = {}
    for target in TARGETS:
        output = project / f"{target}.out"
        arguments = ["compile", str(project / "mine.yaml"), "--target", target, "--output", str(output)]
        assert main([*arguments, *words(*COMMON, *OF_TARGET[target])]) == 0
        texts[target] = output.read_text()
    return texts


def local_one(loaded: Loaded, folder: Path) -> Any:
    folders = PipelineFolders(str(folder), loaded.declaration.name)
    return create_pipeline(loaded.declaration, folders, loaded.search_paths, loaded.declared)


@pytest.fixture(scope="module")
def local(project):
    return local_one(load(project / "mine.yaml"), project / "runs")


# Properties that differ when compiled: names of functions instead of files, an address instead of a folder.
ELSEWHERE = {
    ("Transform", "preprocessing_fn"): "prepare.preprocessing_fn",
    ("Trainer", "trainer_fn"): "train.trainer_fn",
    ("Tuner", "trainer_fn"): "train.trainer_fn",
    ("Pusher", "push_destination"): f"{HOME}/serving",
}
FILES_OF_TFX = {"module_file", "module_path"}


def test_data_in_a_bucket_that_is_not_there(tmp_path, monkeypatch, cli):
    checked = []
    monkeypatch.setattr(buckets.fileio, "exists", checked.append)
    there = ("data.splits=null", "data.dataset=mnist", "data.data_dir=gs://not-there/tfds")
    arguments = ["digits", "--target", VERTEX, *words(*there, *COMMON, *OF_TARGET[VERTEX])]
    for verb in (["compile", "--output", str(tmp_path / "it.json")], ["submit", "--dry-run"]):
        assert "gs://not-there cannot be used: there is no such bucket" in cli(*verb, *arguments, code=6).err
    # The pipeline root's bucket is not checked: only the service needs it.
    assert checked == ["gs://not-there/"] * 2
    assert not (tmp_path / "it.json").exists()


@pytest.mark.parametrize("target", TARGETS)
def test_each_step_equals_the_local_one(compiled, local, target):
    steps = read_steps(compiled[target], target)
    _check_properties(steps, local, ELSEWHERE)
    _check_steps(steps, local, target)


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("preset", REACHED)
def test_each_preset_equals_the_local_one(preset, target, tmp_path):
    loaded = load(preset)
    local = local_one(loaded, tmp_path)
    text = compile_declaration(load(preset, (*COMMON, *OF_TARGET[target]), target), target).text
    place = {("Pusher", "push_destination"): f"gs://example-bucket/pipelines/{loaded.declaration.name}/serving"}
    steps = read_steps(text, target)
    _check_properties(steps, local, place)
    _check_steps(steps, local, target)
    trainer = next(node for node in local.components if node.id == "Trainer")
    found, here = (Settings.of(each) for each in (steps["Trainer"].properties, trainer.exec_properties))
    assert dataclasses.replace(found, declaration=None) == dataclasses.replace(here, declaration=None)
    for key in ("name", "trainer"):
        assert found.declaration[key] == here.declaration[key]


@pytest.mark.long
@pytest.mark.parametrize("preset", presets.names())
def test_each_preset_equals_the_local_one_in_the_pods_of_a_tfjob(preset, tmp_path):
    text = compile_declaration(load(preset, OF_ONE_POD, TFJOB), TFJOB).text
    config_map, _ = yaml.safe_load_all(text)
    (tmp_path / "declaration.yaml").write_text(config_map["data"]["declaration.yaml"])
    local, theirs = (local_one(load(each), tmp_path) for each in (preset, tmp_path / "declaration.yaml"))
    assert len(local.components) == 9
    for node, other in zip(local.components, theirs.components, strict=True):
        assert _described(node) == _described(other)
    assert local.beam_pipeline_args == theirs.beam_pipeline_args


def _described(node: Any) -> tuple[Any, ...]:
    # A resolver's inputs have no producer; only their type.
    inputs = {key: getattr(each, "producer_component_id", str(each.type)) for key, each in node.inputs.items()}
    properties = {key: same(value) for key, value in node.exec_properties.items()}
    # `declared` serves notes on the user's own entries, which are given when compiling.
    properties.get(OPERATION_KEY, {}).pop("declared", None)
    upstream = {each.id for each in node.upstream_nodes}
    return node.id, getattr(node.executor_spec, "executor_class", None), inputs, upstream, properties


def _check_steps(steps: dict[str, Step], local: Any, target: str) -> None:
    there = [node for node in local.components if node.id != "BaselineResolver"]
    assert {*steps} - {"BaselineResolver", "BaselineFinder"} == {node.id for node in there}
    for node in there:
        step = steps[node.id]
        assert step.executor == f"{node.executor_spec.executor_class.__module__}.Executor"
        wanted = {key: (each.producer_component_id, each.output_key) for key, each in node.inputs.items()}
        baseline = wanted.pop("baseline_model", None)
        found = step.inputs.pop("baseline_model", None)
        if baseline and target != KUBEFLOW:
            where = "BaselineResolver-model-resolver" if target == VERTEX else "BaselineResolver"
            assert (found or (where,))[0] == where
            assert where in step.upstream
        elif baseline:
            assert step.values == {"found_baseline": ("BaselineFinder", "found")}
            assert steps["BaselineFinder"].inputs == {"model": ("Trainer", "model")}
            assert "BaselineFinder" in step.upstream
        assert step.inputs == wanted
        upstream = {each.id for each in node.upstream_nodes} - {"BaselineResolver"}
        assert {each for each in step.upstream if not each.startswith("Baseline")} == upstream
        assert step.rest["beam"] in ([], local.beam_pipeline_args[:1])


def _check_properties(steps: dict[str, Step], local: Any, elsewhere: Mapping[tuple[str, str], str]) -> None:
    """Compares execution properties, except those that must differ."""
    for node in local.components:
        if node.id == "BaselineResolver":
            continue
        found = steps[node.id].properties
        wanted = {key: value for key, value in node.exec_properties.items() if value is not None}
        names = {*found, *wanted} - FILES_OF_TFX - {"tfx_estimator", "tfx_estimator_operation", "pipeline_home"}
        for name in names:
            expected = elsewhere.get((node.id, name), wanted.get(name))
            assert same(found[name]) == same(expected), (node.id, name)


@pytest.mark.parametrize("step", ["Trainer", "Tuner"])
@pytest.mark.parametrize("target", TARGETS)
def test_the_trainer_and_the_tuner_read_the_whole_declaration(compiled, local, target, step):
    found = Settings.of(read_steps(compiled[target], target)[step].properties)
    here = Settings.of(next(node for node in local.components if node.id == step).exec_properties)
    assert found.trainer == here.trainer.copy(update={"module_file": "train.py"})
    for name in ("source", "image_shape", "label_names", "start_timeout", "stall_timeout", "path"):
        assert getattr(found, name) == getattr(here, name), name
    assert found.stall_timeout == 71
    assert found.distribution.max_restarts == 8
    # On a target whose runs have separate folders, the training folder must lie outside of them.
    home = read_steps(compiled[target], target)[step].properties.get("pipeline_home")
    assert home == HOME


@pytest.mark.parametrize("target", TARGETS)
def test_the_tuner_reads_its_section_and_the_trainer_its_best_values(compiled, target):
    steps = read_steps(compiled[target], target)
    properties = steps["Tuner"].properties
    section = of_properties(properties[TUNE_KEY], properties[TUNE_OPERATION_KEY])
    assert (section.max_trials, section.seed, section.parallel_trials) == (4, 5, 2)
    assert section.objective.metric == "auc"
    assert steps["Trainer"].inputs["hyperparameters"] == ("Tuner", "best_hyperparameters")


def test_the_trainers_properties_and_cache_key_contain_no_values_of_other_steps(compiled):
    for target in TARGETS:
        properties = read_steps(compiled[target], target)["Trainer"].properties
        assert not [name for name in ("0.61", "min_accuracy", "deploy") if name in json.dumps(properties)]


@pytest.mark.parametrize("target", TARGETS)
def test_each_step_has_its_resources_and_retries(compiled, target):
    # Golden files cover the rest of the section.
    steps, text = read_steps(compiled[target], target), compiled[target]
    for name, step in steps.items():
        container = step.container
        assert container["image"] == IMAGE
        by = f"{tfx_estimator.__version__} on {HERE.name}"
        for key, value in (("EXAMPLE", "value"), ("TFX_ESTIMATOR_COMPILED_BY", by)):
            assert {"name": key, "value": value} in container["env"]
        # For Kubeflow Pipelines 2 and Argo, omitted durations are 0; Vertex AI has its own defaults.
        backoff = {"backoffDuration": "0s", "backoffFactor": 2.0, "backoffMaxDuration": "31536000s"}
        wanted = backoff if target == KUBEFLOW else {}
        assert step.rest["retryPolicy"] == {"maxRetryCount": 3, **wanted}, name
    trainer, statistics = (steps[name].container["resources"] for name in ("Trainer", "StatisticsGen"))
    gpus = {"cloud.google.com/gke-nodepool": "gpus"}
    tolerations = [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "spot", "value": "true", "effect": "NoExecute", "tolerationSeconds": 60},
    ]
    kind, accelerator = "NVIDIA_TESLA_T4" if target == VERTEX else "nvidia.com/gpu", trainer["accelerator"]
    assert (accelerator["type"], int(accelerator["count"])) == (kind, 2)
    assert (trainer["cpuLimit"], trainer["memoryLimit"]) == (8.0, 30.0)
    assert statistics == {"cpuLimit": 2.0, "memoryLimit": 3.75}
    document, *platform = yaml.safe_load_all(text)
    if target == VERTEX:
        given = {"push_destination": f"{HOME}/serving", "pipeline_home": HOME}
        assert document["runtimeConfig"] == {"gcsOutputDirectory": f"{HOME}/artifacts", "parameterValues": given}
        return
    pods = platform[0]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert pods["Trainer_executor"].items() >= {"nodeSelector": {"labels": gpus}, "tolerations": tolerations}.items()
    assert not {"nodeSelector", "tolerations"} & pods["Pusher_executor"].keys()
    assert {*pods} == {f"{name}_executor" for name in steps}


@pytest.mark.parametrize("target", TARGETS)
def test_the_file_does_not_depend_on_this_machine(compiled, project, target):
    here = {str(project), os.getcwd(), os.path.expanduser("~"), sys.prefix, socket.gethostname()} - {"", "/"}
    here |= {f"/home/{getpass.getuser()}", "/tmp/", "localhost", "127.0.0.1"}
    assert not [word for word in here if len(word) > 3 and word in compiled[target]]


def test_the_same_declaration_in_another_folder_compiles_to_the_same_file(compiled, project, tmp_path):
    write_files(tmp_path, FILES)
    for target in TARGETS:
        loaded = load(tmp_path / "mine.yaml", (*COMMON, *OF_TARGET[target]), target)
        assert compile_declaration(loaded, target).text == compiled[target]


def _packed(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as packed:
        names = [name for name in packed.namelist() if ".dist-info/" not in name]
    return sorted(name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in names)


def test_the_users_modules_are_next_to_the_file_and_the_steps_fetch_them(compiled, project):
    wheels = {wheel.name: _packed(wheel) for wheel in project.glob("*.whl")}
    assert len(wheels) == len(set(map(tuple, MODULES.values())))
    for target in TARGETS:
        for name, step in read_steps(compiled[target], target).items():
            argv = [*step.container["command"], *step.container["args"]]
            if name not in MODULES:
                # A changed module must give another model, not other examples.
                assert "--modules" not in argv
                continue
            home = ["--home", "{{$.inputs.parameters['pipeline_home']}}"]
            assert step.properties["pipeline_home"] == HOME
            assert argv[:6] == ["python", "-m", "tfx_estimator.pipeline.runners.entry", *home, "--modules"]
            assert wheels[argv[6]] == MODULES[name]
            entry = "tfx_estimator.pipeline.platforms.kubeflow.step" if target == KUBEFLOW else "tfx.orchestration."
            assert argv[9:12] == ["--", "python", "-m"]
            assert argv[12].startswith(entry)


@pytest.mark.long
def test_a_container_imports_the_modules_and_refuses_others(compiled, project, tmp_path):
    step = read_steps(compiled[VERTEX], VERTEX)["Trainer"]
    name, _, sha256 = step.container["args"][3:6]
    (tmp_path / "modules").mkdir()
    shutil.copy(project / name, tmp_path / "modules")
    (temporary := tmp_path / "tmp").mkdir()
    # Other runs remove folders that no process holds.
    code = (
        "import os; from tfx_estimator.pipeline.base.ending import scratch\n"
        "with scratch.used():\n"
        "    import train; print(train.trainer_fn(0, 0), len(os.listdir(scratch.shared())))"
    )
    then = ["--", "python", "-c", code]
    # The Python that starts the container also runs the command, not the first one on the PATH.
    (other := tmp_path / "bin" / "python").parent.mkdir()
    other.write_text("#!/bin/sh\nexit 9\n")
    other.chmod(0o755)

    def start(checksum: str) -> subprocess.CompletedProcess:
        module = step.container["command"][1:]
        command = [sys.executable, *module, "--home", str(tmp_path), "--modules", name, "--sha256", checksum, *then]
        path = f"{other.parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "TMPDIR": str(temporary), "PATH": path}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)

    for _ in range(2):
        done = start(sha256)
        # The modules of this start only, and the folder of the run.
        assert (done.returncode, done.stdout) == (0, "1 2\n"), done.stderr
    refused = start("0" * 64)
    assert refused.returncode == 6
    assert "is not the wheel that this pipeline was compiled with" in refused.stderr
    (home,) = temporary.iterdir()
    assert len([*home.iterdir()]) == 1


def test_compiling_leaves_no_temporary_files(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    # TensorFlow Datasets creates a folder for requests to its bucket.
    overrides = words(*COMMON, *OF_TARGET[KUBEFLOW])
    file = str(tmp_path / "mnist.yaml")
    assert main(["compile", "mnist", "--target", KUBEFLOW, "--output", file, *overrides]) == 0
    assert os.listdir(tmp_path) == ["mnist.yaml"]


def test_the_vertex_ai_client_accepts_the_file(compiled, project):
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import aiplatform

    place = {"project": "example-project", "location": "europe-west4", "credentials": AnonymousCredentials()}
    job = aiplatform.PipelineJob(display_name="taxi", template_path=str(project / "vertex.out"), **place)
    spec = job._gca_resource.pipeline_spec
    assert {*spec["root"]["dag"]["tasks"]} >= {"Trainer", "Pusher", "BaselineResolver-model-resolver"}
    assert job._gca_resource.runtime_config.gcs_output_directory == f"{HOME}/artifacts"
