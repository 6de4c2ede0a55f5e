"""A step of Kubeflow Pipelines 2 reads the service's input, which TFX's own entry point cannot."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2
from tfx.components import CsvExampleGen
from tfx.dsl.components.base.base_executor import BaseExecutor
from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_entrypoint_utils as utils
from tfx.orchestration.kubeflow.v2.kubeflow_v2_dag_runner import KubeflowV2DagRunnerConfig
from tfx.proto import example_gen_pb2

from tests.pipeline.platforms.kubeflow.of_ones_own import make_pipeline
from tests.root import ROOT
from tfx_estimator import KubeflowV2Runner
from tfx_estimator.pipeline.base.errors import TrainingError
from tfx_estimator.pipeline.platforms.kubeflow import step as kubeflow_step
from tfx_estimator.pipeline.platforms.rehearsal import services
from tfx_estimator.pipeline.platforms.rehearsal.job import Task, read_job

FILE = ROOT / "tests" / "golden" / "compiled" / "digits.kubeflow.yaml"
STEP = "tfx_estimator.pipeline.platforms.kubeflow.step"


def _executor_input(task: Task) -> dict[str, Any]:
    inputs, outputs = (
        {
            key: {"name": str(17 + index), "uri": f"gs://there/{key}", "type": defined["artifactType"], "metadata": {}}
            for index, (key, defined) in enumerate(task.definitions(way, "artifacts").items())
        }
        for way in ("input", "output")
    )
    by_way = {"inputs": services.as_inputs(inputs), "outputs": services.as_outputs(outputs, "gs://there")}
    return {way: {"artifacts": {key: {"artifacts": [it]} for key, it in each.items()}} for way, each in by_way.items()}


def _read(text: str) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Returns the inputs and outputs that TFX reads from an ExecutorInput."""
    read = json_format.Parse(text, pipeline_spec_pb2.ExecutorInput())
    return utils.parse_raw_artifact_dict(read.inputs.artifacts), utils.parse_raw_artifact_dict(read.outputs.artifacts)


def test_each_step_reads_the_artifacts_that_its_component_declares():
    for task in [task for task in read_job(str(FILE)).tasks if task.container]:
        assert task.container
        assert list(task.container["command"]) == ["python", "-m", STEP]
        invocation = _executor_input(task)
        words = [word.replace("{{$}}", json.dumps(invocation)) for word in task.container["args"]]
        args, beam = kubeflow_step.parse([STEP, *words])
        inputs, outputs = _read(args.json_serialized_invocation_args)
        for way, read in (("input", inputs), ("output", outputs)):
            declared = task.definitions(way, "artifacts")
            assert {key: f"title: tfx.{each[0].type_name}" for key, each in read.items()} == {
                key: defined["artifactType"]["instanceSchema"].splitlines()[0] for key, defined in declared.items()
            }, task.name
        assert all(word.startswith("--") for word in beam[1:])
        # The reason for our entry point: remove it once TFX reads them itself.
        with pytest.raises((AttributeError, ValueError, ImportError)):
            _read(json.dumps(invocation))


@pytest.mark.parametrize("kind", [{"schemaTitle": "system.Dataset"}, {"instanceSchema": ""}, {}])
def test_an_input_has_the_type_that_the_component_declares(kind):
    declared = {"examples": {"artifactType": {"instanceSchema": "title: tfx.Examples\ntype: object\n"}}}
    artifact = {"name": "17", "uri": "gs://there/examples", "type": kind, "metadata": {"split_names": '["train"]'}}
    invocation = {"inputs": {"artifacts": {"examples": {"artifacts": [artifact]}}}, "outputs": {}}
    inputs, outputs = _read(kubeflow_step.for_tfx(json.dumps(invocation), json.dumps({"artifacts": declared})))
    assert (inputs["examples"][0].type_name, inputs["examples"][0].split_names) == ("Examples", '["train"]')
    assert outputs == {}


def _run(spec: dict[str, Any], name: str, folder: Path, values: dict[str, Any], **inputs: Any) -> dict[str, Any]:
    """Runs a step of a user's own pipeline with the service's input; returns its output metadata."""
    (folder / name).mkdir()
    component, file = spec["components"][name], folder / name / "output_metadata.json"
    outputs = {
        key: {"uri": str(folder / name / key), "type": defined["artifactType"]}
        for key, defined in component["outputDefinitions"]["artifacts"].items()
    }
    put_out = component["outputDefinitions"].get("parameters", {})
    invocation = {
        "inputs": {"artifacts": _listed(services.as_inputs(inputs)), "parameterValues": values},
        "outputs": {
            "artifacts": _listed(services.as_outputs(outputs, str(folder))),
            "parameters": {key: {"outputFile": str(folder / name / f"{key}.txt")} for key in put_out},
            "outputFile": str(file),
        },
    }
    words = spec["deploymentSpec"]["executors"][component["executorLabel"]]["container"]["args"]
    kubeflow_step.main(kubeflow_step.parse([STEP, *(word.replace("{{$}}", json.dumps(invocation)) for word in words)]))
    return json.loads(file.read_text())


def _listed(artifacts: dict[str, Any]) -> dict[str, Any]:
    return {key: {"artifacts": [each]} for key, each in artifacts.items()}


def _compiled(*more: Any) -> dict[str, Any]:
    config = KubeflowV2DagRunnerConfig(default_image="registry.example/own")
    return KubeflowV2Runner(config).run(make_pipeline(*more), write_out=False)


def test_steps_of_a_users_own_pass_on_artifacts_and_parameters(tmp_path):
    spec = _compiled()
    made = _run(spec, "Making", tmp_path, {"word": "hello", "times": 3.0, "rate": 0.5})
    assert made["parameterValues"] == {"said": "hello", "count": 3.0}
    (model,) = made["artifacts"]["model"]["artifacts"]
    kept = {**services.as_kept(model, "Making", "model"), "name": "17"}
    _run(spec, "Taking", tmp_path, made["parameterValues"], model=kept)
    assert (tmp_path / "Taking" / "copied").read_text() == "hellohellohello hello xxx 0.5"
    # The first time there is no baseline.
    found = _run(spec, "Evaluator-baseline", tmp_path, {"pipeline_home": str(tmp_path / "home")}, model=kept)
    assert found["parameterValues"] == {"found": ""}


def test_the_latest_span_of_files_is_read_although_no_service_resolves_it(tmp_path):
    for span, rows in (("07", "1\n2\n"), ("11", "3\n4\n5\n")):
        (tmp_path / f"data-{span}").mkdir()
        (tmp_path / f"data-{span}" / "rows.csv").write_text(f"number\n{rows}")
    split = example_gen_pb2.Input.Split(name="all", pattern="data-{SPAN}/*")
    spec = _compiled(CsvExampleGen(str(tmp_path), input_config=example_gen_pb2.Input(splits=[split])).with_id("Latest"))
    given = spec["root"]["dag"]["tasks"]["Latest"]["inputs"]["parameters"]
    values = {key: each["runtimeValue"]["constant"] for key, each in given.items()}
    (examples,) = _run(spec, "Latest", tmp_path, values)["artifacts"]["examples"]["artifacts"]
    assert examples["metadata"]["custom:span"] == 11
    assert "num_files:1," in examples["metadata"]["input_fingerprint"]
    files = [str(path) for path in Path(examples["uri"]).glob("Split-*/*.gz")]
    records = [*tf.data.TFRecordDataset(files, "GZIP").as_numpy_iterator()]
    read = [tf.train.Example.FromString(each).features.feature["number"].int64_list.value[0] for each in records]
    assert sorted(read) == [3, 4, 5]


class Failing(BaseExecutor):
    """An executor whose error is one of this project's."""

    def Do(self, *_: Any) -> None:
        raise TrainingError("a task failed", todo="see its log")


def test_an_error_of_this_project_is_printed_with_its_own_message(tmp_path, capsys):
    invocation = {"inputs": {}, "outputs": {"outputFile": str(tmp_path / "executor_output.json")}}
    words = {"executor_class_path": f"{__name__}.Failing", "json_serialized_invocation_args": json.dumps(invocation)}
    args = argparse.Namespace(**words, json_serialized_inputs_spec_args="{}", is_driven=False)
    with pytest.raises(SystemExit) as ended:
        kubeflow_step.main((args, []))
    assert ended.value.code == TrainingError.exit_code
    assert capsys.readouterr().err.endswith("a task failed\n  to do:    see its log\n")
