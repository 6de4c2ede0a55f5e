"""The results of a run, read from ML Metadata."""

from __future__ import annotations

import json
import os
import re
from types import SimpleNamespace

import pytest
import tensorflow_model_analysis as tfma
from google.protobuf import json_format
from ml_metadata.proto import metadata_store_pb2 as mlmd
from tfx.orchestration import metadata
from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_entrypoint_utils

from tests.artifacts import artifact
from tfx_estimator import testing
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.report.artifacts import Output, outputs_from_json
from tfx_estimator.pipeline.run.results import add_outputs, collect
from tfx_estimator.pipeline.run.summary import Summary
from tfx_estimator.pipeline.runners.listener import NodeRun


@pytest.fixture
def warned(tmp_path):
    """Records one TfdsExampleGen execution per list of classes; returns the warnings of the last one."""

    def run(*classes: list[str], state: str = "ran") -> list[str]:
        folders = PipelineFolders(str(tmp_path / str(len(os.listdir(tmp_path)))), "numbers")
        folders.make_logs()
        with metadata.Metadata(metadata.sqlite_metadata_connection_config(folders.metadata)) as handle:
            kind = handle.store.put_execution_type(mlmd.ExecutionType(name="TfdsExampleGen"))
            for names in classes:
                examples = artifact("Examples", dataset="numbers", label_names=json.dumps(names), version="")
                examples.split_names = "[]"
                examples.type_id = handle.store.put_artifact_type(examples.artifact_type)
                (made,) = handle.store.put_artifacts([examples.mlmd_artifact])
                (execution,) = handle.store.put_executions([mlmd.Execution(type_id=kind)])
                event = mlmd.Event(artifact_id=made, execution_id=execution, type=mlmd.Event.OUTPUT)
                event.path.steps.add(key="examples")
                handle.store.put_events([event])
        results = Summary("d.yaml", components=[NodeRun("TfdsExampleGen", state, 1.0, execution)])
        collect(results, folders)
        assert results.label_names == tuple(classes[-1])
        return [str(each) for each in results.warnings]

    return run


def test_the_rows_of_a_table_are_counted_by_its_statistics():
    statistics = testing.artifact("ExampleStatistics", testing.examples([{"x": 1.5}] * 7))
    found = {("StatisticsGen", "statistics"): Output(statistics.uri, {"split_names": '["train", "eval"]'})}
    add_outputs(results := Summary("d.yaml"), found)
    assert (results.examples, results.evaluated_split) == ({"train": 7, "eval": 7}, "eval")


def test_a_changed_order_of_the_classes_is_warned_of_once(warned):
    before, now = ["0", "1", "10", "2"], ["0", "1", "2", "10"]
    (warning,) = warned(before, now)
    assert "label 2 is '2', and was '10'" in warning
    assert warned(before, now, state="cached") == warned(before, now, now) == warned(now) == []
    # Added or removed classes cause no warning.
    assert warned(["a", "c"], ["a", "b", "c"]) == []


@pytest.mark.parametrize(
    ("labels", "absent"), [((0, 1, 2), []), ((0,), ["b, c"]), ((), [])], ids=["all", "one", "no slices by label"]
)
def test_a_class_without_an_evaluated_example_is_warned_of(tmp_path, monkeypatch, labels, absent):
    metrics = {"": {"": {"example_count": {"doubleValue": 4.0}}}}
    found = [((), metrics), *(((("label", label),), metrics) for label in labels)]
    monkeypatch.setattr(tfma, "load_eval_result", lambda uri: SimpleNamespace(slicing_metrics=found))
    results = Summary("d.yaml", label_names=("a", "b", "c"))
    add_outputs(results, {("Evaluator", "evaluation"): Output(str(tmp_path), {})})
    assert [re.search("no example of (.*):", str(each))[1] for each in results.warnings] == absent


def test_artifacts_reported_by_a_service_give_the_same_results_as_ml_metadata():
    # The artifact type has a `version` too, which is a number.
    properties = {"dataset": "numbers", "version": "1.0.0", "label_names": '["0", "1"]', "num_examples_eval": 30}
    examples = artifact("Examples", "gs://bucket/examples", **properties)
    examples.split_names = '["train", "eval"]'
    pushed = artifact("PushedModel", pushed=1, pushed_destination="gs://bucket/serving/1")
    outputs = {
        node: {name: json_format.MessageToDict(kubeflow_v2_entrypoint_utils.to_runtime_artifact(made, {}))}
        for node, name, made in (("TfdsExampleGen", "examples", examples), ("Pusher", "pushed_model", pushed))
    }
    add_outputs(results := Summary("d.yaml"), outputs_from_json(outputs))
    assert (results.dataset, results.label_names, results.evaluated_split) == ("numbers 1.0.0", ("0", "1"), "eval")
    assert results.examples == {"train": 0, "eval": 30}
    assert results.pushed == "gs://bucket/serving/1"
