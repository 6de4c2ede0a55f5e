"""A Trainer in users' own pipelines: runners pass it the settings, and TFX's cache keys the relevant ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2
from ml_metadata import proto
from tfx.dsl.compiler import compiler
from tfx.dsl.components.common.importer import Importer
from tfx.orchestration import data_types_utils, metadata
from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner
from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_entrypoint_utils
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.orchestration.pipeline import Pipeline
from tfx.orchestration.portable import execution_publish_utils, inputs_utils
from tfx.types import standard_artifacts

from tfx_estimator.components.trainer import Trainer
from tfx_estimator.components.trainer.settings import SETTINGS_KEY, Settings

# Saves a model that adds a number from custom_config, and writes its other arguments to arguments.json.
MODULE = """
import json, os
import tensorflow as tf

def run_fn(fn_args):
    class Adder(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
        def serve(self, x):
            return {"sum": x + fn_args.custom_config["add"]}

    adder = Adder()
    tf.saved_model.save(adder, fn_args.serving_model_dir, signatures={"serving_default": adder.serve})
    with open(os.path.join(fn_args.model_run_dir, "arguments.json"), "w") as file:
        json.dump([fn_args.custom_config, os.environ.get("TF_NUM_INTRAOP_THREADS")], file)
"""


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch):
    """Makes a pipeline with an Importer and a Trainer."""
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "runner_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path / "user"))
    (tmp_path / "examples").mkdir()

    def make(name: str = "one", **arguments: Any) -> Any:
        examples = Importer(
            str(tmp_path / "examples"),
            standard_artifacts.Examples,
            properties={"split_names": json.dumps(["train", "eval"])},
        ).with_id("Examples")
        trainer = Trainer(
            **{
                "examples": examples.outputs["result"],
                "run_fn": "runner_module.run_fn",
                "custom_config": {"add": 2.0},
                **arguments,
            }
        )
        return Pipeline(
            name,
            pipeline_root=str(tmp_path / name),
            components=[examples, trainer],
            enable_cache=True,
            metadata_connection_config=metadata.sqlite_metadata_connection_config(str(tmp_path / "metadata.sqlite")),
        )

    return make


def arguments(path: str) -> dict[str, Any]:
    return {
        "settings": Settings(stall_timeout=99.0, start_timeout=33.0),
        "distribution": {"train": {"strategy": "multi_worker_mirrored", "timeout_seconds": 7.0}, "max_restarts": 1},
        "run_fn" if path == "run_fn" else "trainer_fn": "runner_module.run_fn",
    }


def check(properties: dict[str, Any]) -> None:
    settings = Settings.of(properties)
    assert (settings.stall_timeout, settings.start_timeout, settings.path) == (99.0, 33.0, "run_fn")
    assert settings.distribution.train.timeout_seconds == 7.0
    assert settings.distribution.max_restarts == 1
    assert settings.distribution.train.strategy == "multi_worker_mirrored"
    assert len(settings.source) == 64
    assert json.loads(properties["custom_config"]) == {"add": 2.0}


def test_the_local_runners_node_carries_the_settings(pipeline):
    compiled = compiler.Compiler().compile(pipeline(**arguments("run_fn")))
    node = compiled.nodes[1].pipeline_node
    parameters = inputs_utils.resolve_parameters_with_schema(node_parameters=node.parameters)
    check(data_types_utils.build_parsed_value_dict(parameters))


def test_kubeflow_v2_passes_them_to_the_container(pipeline, tmp_path):
    file = tmp_path / "pipeline.json"
    config = kubeflow_v2_dag_runner.KubeflowV2DagRunnerConfig(default_image="image")
    kubeflow_v2_dag_runner.KubeflowV2DagRunner(config, output_filename=str(file)).run(
        pipeline("two", **arguments("run_fn"))
    )
    spec = json_format.ParseDict(
        json.loads(file.read_text())["pipelineSpec"], pipeline_spec_pb2.PipelineSpec(), ignore_unknown_fields=True
    )
    given = spec.root.dag.tasks["Trainer"].inputs.parameters
    values = {name: each.runtime_value.constant_value for name, each in given.items()}
    check(kubeflow_v2_entrypoint_utils.parse_execution_properties({}, values))


@pytest.mark.cluster
@pytest.mark.timeout(240)
def test_irrelevant_settings_do_not_miss_tfxs_cache_and_each_pipeline_has_its_own(pipeline, tmp_path):
    # Both are built before either runs.
    one = pipeline("one", settings=Settings(stall_timeout=55.0), distribution={"max_restarts": 1})
    two = pipeline("two", settings=Settings(stall_timeout=66.0))
    for each in (two, one):
        LocalDagRunner().run(each)
    found = {}
    for name in ("one", "two"):
        (job,) = (tmp_path / name / "Trainer" / "model_run").glob("*/logs/job.json")
        settings = Settings.from_dict(json.loads(job.read_text())["settings"])
        found[name] = (settings.stall_timeout, settings.distribution.max_restarts)
        (file,) = (tmp_path / name / "Trainer" / "model_run").glob("*/arguments.json")
        assert json.loads(file.read_text()) == [{"add": 2.0}, None]
    assert found == {"one": (55.0, 1), "two": (66.0, 3)}

    # Another deadline, other restarts and another folder.
    other = {"distribution": {"max_restarts": 7, "network": "host"}, "training_root": str(tmp_path / "trainings")}
    LocalDagRunner().run(pipeline("one", **other))
    connection = metadata.sqlite_metadata_connection_config(str(tmp_path / "metadata.sqlite"))
    with metadata.Metadata(connection) as store:
        executions = store.store.get_executions_by_type("tfx_estimator.components.trainer.component.Trainer")
        states = [each.last_known_state for each in executions]
    assert states == [proto.Execution.COMPLETE] * 2 + [proto.Execution.CACHED]
    assert json.loads(executions[0].custom_properties[SETTINGS_KEY].string_value)["path"] == "run_fn"


@pytest.mark.cluster
@pytest.mark.timeout(240)
def test_a_training_that_was_not_recorded_in_ml_metadata_is_adopted_by_the_next_run(pipeline, tmp_path, monkeypatch):
    publish = execution_publish_utils.publish_succeeded_execution

    def refuse(*args: Any, **kwargs: Any) -> Any:
        if "model_run" in kwargs["output_artifacts"]:
            raise RuntimeError("database or disk is full")
        return publish(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(execution_publish_utils, "publish_succeeded_execution", refuse)
        with pytest.raises(RuntimeError, match="database or disk is full"):
            LocalDagRunner().run(pipeline())

    def attempts() -> list[list[str]]:
        """Returns the logs of tasks in each model_run."""
        runs = sorted((tmp_path / "one" / "Trainer" / "model_run").iterdir(), key=lambda run: int(run.name))
        return [sorted(path.name for path in run.glob("logs/*.log")) for run in runs]

    first, second = "chief-0.attempt-1.log", "chief-0.attempt-2.log"
    assert attempts() == [[first]]
    LocalDagRunner().run(pipeline())
    assert attempts() == [[first], [first, second]]
