"""A step of Kubeflow Pipelines 2 reads what the service hands over, which TFX's own entry does not."""

from __future__ import annotations

import argparse
import json
from typing import Any

import pytest
from tfx.dsl.components.base.base_executor import BaseExecutor

from tests.root import ROOT
from tfx_estimator.pipeline.base.errors import TrainingError
from tfx_estimator.pipeline.platforms.kubeflow import step as kubeflow_step
from tfx_estimator.pipeline.platforms.rehearsal import services
from tfx_estimator.pipeline.platforms.rehearsal.job import Task, read_job

pytestmark = pytest.mark.unit

FILE = ROOT / "tests" / "golden" / "compiled" / "digits.kubeflow_v2.yaml"
STEP = "tfx_estimator.pipeline.platforms.kubeflow.step"


def _told(task: Task) -> dict[str, Any]:
    inputs, outputs = (
        {
            key: {"name": str(17 + index), "uri": f"gs://there/{key}", "type": defined["artifactType"], "metadata": {}}
            for index, (key, defined) in enumerate(task.definitions(way, "artifacts").items())
        }
        for way in ("input", "output")
    )
    told = {"inputs": services.as_inputs(inputs), "outputs": services.as_outputs(outputs, "gs://there")}
    return {way: {"artifacts": {key: {"artifacts": [it]} for key, it in each.items()}} for way, each in told.items()}


def _read(text: str) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """The inputs and outputs that TFX makes of an ExecutorInput."""
    from google.protobuf import json_format
    from kfp.pipeline_spec import pipeline_spec_pb2
    from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_entrypoint_utils as utils

    read = json_format.Parse(text, pipeline_spec_pb2.ExecutorInput())
    return utils.parse_raw_artifact_dict(read.inputs.artifacts), utils.parse_raw_artifact_dict(read.outputs.artifacts)


def test_each_step_reads_the_artifacts_that_its_component_declares():
    for task in [task for task in read_job(str(FILE)).tasks if task.container]:
        assert task.container
        assert list(task.container["command"]) == ["python", "-m", STEP]
        told = _told(task)
        words = [word.replace("{{$}}", json.dumps(told)) for word in task.container["args"]]
        args, beam = kubeflow_step.parse([STEP, *words])
        inputs, outputs = _read(args.json_serialized_invocation_args)
        for way, read in (("input", inputs), ("output", outputs)):
            declared = task.definitions(way, "artifacts")
            assert {key: f"title: tfx.{each[0].type_name}" for key, each in read.items()} == {
                key: defined["artifactType"]["instanceSchema"].splitlines()[0] for key, defined in declared.items()
            }, task.name
        assert all(word.startswith("--") for word in beam[1:])
        # This is why: should it ever read them itself, ours may go.
        with pytest.raises((AttributeError, ValueError, ImportError)):
            _read(json.dumps(told))


@pytest.mark.parametrize("kind", [{"schemaTitle": "system.Dataset"}, {"instanceSchema": ""}, {}])
def test_whatever_is_said_of_an_input_it_is_what_the_component_declares(kind):
    declared = {"examples": {"artifactType": {"instanceSchema": "title: tfx.Examples\ntype: object\n"}}}
    artifact = {"name": "17", "uri": "gs://there/examples", "type": kind, "metadata": {"split_names": '["train"]'}}
    told = {"inputs": {"artifacts": {"examples": {"artifacts": [artifact]}}}, "outputs": {}}
    inputs, outputs = _read(kubeflow_step.for_tfx(json.dumps(told), json.dumps({"artifacts": declared})))
    assert (inputs["examples"][0].type_name, inputs["examples"][0].split_names) == ("Examples", '["train"]')
    assert outputs == {}


class Failing(BaseExecutor):
    """An executor whose error is one of this project's."""

    def Do(self, *_: Any) -> None:
        raise TrainingError("a task failed", todo="see its log")


def test_an_error_of_ours_is_told_in_its_own_words(tmp_path, capsys):
    told = {"inputs": {}, "outputs": {"outputFile": str(tmp_path / "executor_output.json")}}
    words = {"executor_class_path": f"{__name__}.Failing", "json_serialized_invocation_args": json.dumps(told)}
    args = argparse.Namespace(**words, json_serialized_inputs_spec_args="{}", is_driven=False)
    with pytest.raises(SystemExit) as ended:
        kubeflow_step.main((args, []))
    assert ended.value.code == TrainingError.exit_code
    assert capsys.readouterr().err.endswith("a task failed\n  to do:    see its log\n")
