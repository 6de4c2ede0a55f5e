"""A user's own pipeline, compiled by TFX, is adapted for Kubeflow Pipelines and for kfp's parser."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tfx.orchestration.kubeflow.v2.kubeflow_v2_dag_runner import KubeflowV2DagRunner, KubeflowV2DagRunnerConfig
from tfx.tools.cli.handler.kubeflow_v2_dag_runner_patcher import KubeflowV2DagRunnerPatcher

from tests.pipeline.platforms.kubeflow.of_ones_own import Comparing, make_pipeline, resolver
from tests.root import run_python
from tfx_estimator import DeclarationError, KubeflowV2Runner
from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.platforms.kubeflow import step
from tfx_estimator.pipeline.platforms.kubeflow.adapt import adapt

# The path of another Python with any kfp 2.
KFP_PYTHON = "TFX_ESTIMATOR_KFP_PYTHON"
# Reads a file's specification without ignoring unknown fields, nests it in another pipeline, and reads it again.
PARSER = """
import sys

import yaml
from google.protobuf import json_format
from kfp import compiler, components, dsl
from kfp.pipeline_spec import pipeline_spec_pb2


def read(path):
    with open(path) as file:
        text = file.read()
    spec = yaml.safe_load(text)
    json_format.ParseDict(spec, pipeline_spec_pb2.PipelineSpec())
    json_format.ParseDict(spec["deploymentSpec"], pipeline_spec_pb2.PipelineDeploymentConfig())
    print(*sorted(spec["deploymentSpec"]["executors"]))
    return components.load_component_from_text(text)


inner, nested = read(sys.argv[1]), sys.argv[2]


@dsl.pipeline(name="outer")
def outer():
    inner(word="of the outer one")


compiler.Compiler().compile(outer, nested)
compiler.Compiler().compile(read(nested), nested)
"""


def compiled(*more: Any, schema_2_1: bool = True) -> dict[str, Any]:
    """Compiles the pipeline with TFX."""
    config = KubeflowV2DagRunnerConfig(default_image="registry.example/own", use_pipeline_spec_2_1=schema_2_1)
    return KubeflowV2DagRunner(config).run(make_pipeline(*more), write_out=False)


def test_both_schemas_give_the_same_result():
    old, new = (adapt(compiled(schema_2_1=each)) for each in (False, True))
    assert old[0] == new[0]
    assert len(old[1]) == len(new[1]) + 1
    spec = old[0]
    assert spec["schemaVersion"] == "2.1.0"
    assert spec["defaultPipelineRoot"] == "gs://there/own"
    tasks, executors = spec["root"]["dag"]["tasks"], spec["deploymentSpec"]["executors"]
    assert tasks["Making"]["inputs"]["parameters"]["times"] == {"runtimeValue": {"constant": 3}}
    assert executors["Imported_executor"]["importer"]["artifactUri"] == {"constant": "gs://there/model"}
    started = {label: each["container"]["command"] for label, each in executors.items() if "container" in each}
    assert started.pop("Boxed_executor")[0] == "sh"
    steps = ("CsvExampleGen", "Evaluator", "Evaluator-baseline", "Making", "Taking")
    assert started == {f"{name}_executor": ["python", "-m", step.__name__] for name in steps}
    uncached = {name for name, task in tasks.items() if "cachingOptions" not in task}
    assert uncached == {"CsvExampleGen", "Evaluator-baseline"}
    again, notes = adapt(spec)
    assert (again, notes) == (spec, [])


def test_an_output_parameter_is_found_with_its_type():
    spec, _ = adapt(compiled())
    given = spec["root"]["dag"]["tasks"]["Taking"]["inputs"]["parameters"]
    assert given["count"] == {"taskOutputParameter": {"producerTask": "Making", "outputParameterKey": "count"}}
    declared = spec["components"]["Taking"]["inputDefinitions"]
    assert [declared["parameters"][name]["parameterType"] for name in ("said", "count")] == ["STRING", "NUMBER_INTEGER"]
    words = spec["deploymentSpec"]["executors"]["Taking_executor"]["container"]["args"]
    assert json.loads(words[words.index("--json_serialized_inputs_spec_args") + 1]) == declared


def test_an_evaluator_gets_its_baseline_from_a_step_in_place_of_its_resolver():
    job = compiled()
    spec, notes = adapt(job)
    tasks, components = spec["root"]["dag"]["tasks"], spec["components"]
    assert "Blessed" not in json.dumps(spec)
    found = {"taskOutputParameter": {"producerTask": "Evaluator-baseline", "outputParameterKey": "found"}}
    home = {"componentInputParameter": "pipeline_home"}
    given, model = tasks["Evaluator"]["inputs"], tasks["Evaluator"]["inputs"]["artifacts"]["model"]
    assert set(given["artifacts"]) == {"examples", "model"}
    assert {key: given["parameters"][key] for key in ("found_baseline", "pipeline_home")} == {
        "found_baseline": found,
        "pipeline_home": home,
    }
    assert tasks["Evaluator"]["dependentTasks"] == ["CsvExampleGen", "Making", "Evaluator-baseline"]
    assert tasks["Evaluator-baseline"]["inputs"] == {
        "artifacts": {"model": model},
        "parameters": {"pipeline_home": home},
    }
    assert "cachingOptions" not in tasks["Evaluator-baseline"]
    parameter = spec["root"]["inputDefinitions"]["parameters"]["pipeline_home"]
    assert parameter == {"parameterType": "STRING", "defaultValue": "gs://there/own"}
    assert "baseline_model" not in components["Evaluator"]["inputDefinitions"]["artifacts"]
    # A specification without the pipeline's folder.
    alone, notes = adapt(job["pipelineSpec"])
    assert set(tasks) - set(alone["root"]["dag"]["tasks"]) == {"Evaluator-baseline"}
    assert "Evaluator compares with no earlier model: Kubeflow Pipelines 2 has no resolvers" in notes


@pytest.mark.parametrize(("blessed", "key"), [(True, "baseline_model"), (False, "other")])
def test_another_step_loses_only_optional_inputs(blessed, key):
    latest = resolver(blessed).with_id("Latest")
    job = compiled(latest, Comparing(**{key: latest.outputs["model"]}))
    if key == "other":
        with pytest.raises(DeclarationError, match="the input other of Comparing comes from a resolver"):
            adapt(job)
        return
    comparing = adapt(job)[0]["root"]["dag"]["tasks"]["Comparing"]
    assert comparing["inputs"] == {"artifacts": {}}
    assert not comparing["dependentTasks"]


@pytest.mark.parametrize("python", [sys.executable, os.environ.get(KFP_PYTHON)], ids=["the-stack's", "another"])
def test_kfp_reads_it_nests_it_and_compiles_it_again(tmp_path, cli, python):
    if python is None or (python == sys.executable and not stacks.has_keras_3()):
        pytest.skip(f"kfp here is of version 1: name another by {KFP_PYTHON}")
    (tmp_path / "parser.py").write_text(PARSER)
    (tmp_path / "own.json").write_text(json.dumps(compiled(schema_2_1=False)))
    cli("adapt", str(tmp_path / "own.json"), "--output", str(tmp_path / "own.yaml"))
    done = run_python("parser.py", "own.yaml", "nested.yaml", python=python, cwd=tmp_path, code=0)
    labels, nested = done.stdout.splitlines()
    assert "CsvExampleGen_executor" in labels
    assert len(nested.split()) == len(labels.split()) == 7
    spec = yaml.safe_load((tmp_path / "nested.yaml").read_text())
    inner = spec["components"]["comp-own"]["inputDefinitions"]["parameters"]
    assert inner["word"] == {"parameterType": "STRING"}


def test_the_runner_keeps_the_defaults_of_runtime_parameters(tmp_path):
    config = KubeflowV2DagRunnerConfig(default_image="registry.example/own")
    runner = KubeflowV2Runner(config=config, output_dir=str(tmp_path / "made"), output_filename="own.yaml")
    compiled_spec = runner.run(make_pipeline(), write_out=True)
    assert yaml.safe_load((tmp_path / "made" / "own.yaml").read_text()) == compiled_spec
    word = {"parameterType": "STRING", "defaultValue": "hello"}
    assert compiled_spec["root"]["inputDefinitions"]["parameters"]["word"] == word
    expected, _ = adapt(compiled())
    expected["root"] = compiled_spec["root"]
    assert compiled_spec == expected
    given = KubeflowV2Runner(config).run(make_pipeline(), {"word": "given"}, write_out=False)
    assert given["root"]["inputDefinitions"]["parameters"]["word"]["defaultValue"] == "given"


def test_tfxs_command_line_accepts_the_runner_as_its_own(tmp_path):
    # As `tfx pipeline create --engine vertex` does.
    (tmp_path / "pipeline").mkdir()
    patcher = KubeflowV2DagRunnerPatcher(True, prepare_dir_fn=lambda name: str(tmp_path / "pipeline"))
    with patcher.patch() as context:
        KubeflowV2Runner(KubeflowV2DagRunnerConfig(default_image="registry.example/own")).run(make_pipeline())
    assert context[patcher.PIPELINE_NAME] == "own"
    compiled_spec = json.loads(Path(context[patcher.OUTPUT_FILE_PATH]).read_text())
    container = compiled_spec["deploymentSpec"]["executors"]["Making_executor"]["container"]
    assert container["command"] == ["python", "-m", step.__name__]


def test_the_verb_writes_the_given_output_and_replaces_no_file(tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own.json").write_text(json.dumps(compiled()))
    assert "steps started by tfx-estimator's entry point in place of TFX's: 4" in cli("adapt", "own.json").out
    assert "nothing had to be adapted" in cli("adapt", "own-kubeflow.yaml", "--output", "again.json").out
    assert json.loads(Path("again.json").read_text()) == yaml.safe_load(Path("own-kubeflow.yaml").read_text())
    assert "--force" in cli("adapt", "own.json", code=2).err
    # A second document with pod settings stays.
    text = Path("own-kubeflow.yaml").read_text() + "---\nplatforms: {kubernetes: {}}\n"
    Path("two.yaml").write_text(text)
    cli("adapt", "two.yaml", "--output", "two.yaml", "--force")
    assert [*yaml.safe_load_all(Path("two.yaml").read_text())] == [*yaml.safe_load_all(text)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "schemaVersion: 2.1",
        '{"pipelineSpec": {"schemaVersion": "2.1.0"}}',
        '{"pipelineSpec": 7}',
        '{"schemaVersion": "2.1.0", "root": {"dag": []}, "components": {}, "deploymentSpec": {}}',
        '{"schemaVersion": "2.1.0", "root": {}, "components": {}, "deploymentSpec": {"of": "another"}}',
        "kind: Workflow",
    ],
)
def test_anything_but_a_compiled_pipeline_is_refused(tmp_path, cli, text):
    (tmp_path / "own.json").write_text(text)
    stderr = cli("adapt", str(tmp_path / "own.json"), "--output", str(tmp_path / "made.yaml"), code=2).err
    assert "to do:" in stderr
    assert "Traceback" not in stderr
    assert [path.name for path in tmp_path.iterdir()] == ["own.json"]
