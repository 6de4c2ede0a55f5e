"""Reads from ML Metadata and the artifacts what a run came to."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterator
from typing import Any

from ml_metadata.proto import metadata_store_pb2
from tfx.orchestration import metadata
from tfx.types import Artifact
from tfx.types.artifact_utils import decode_split_names, deserialize_artifact

from tfx_estimator.components.tfds_example_gen.properties import label_names
from tfx_estimator.components.trainer.replica_check.verdict import read_notes
from tfx_estimator.components.trainer.supervisor.outcome import Restart
from tfx_estimator.pipeline.config.profile import PROFILE_TEXT, PROFILES
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.run.summary import ACCURACY, COUNT, LOSS, Summary, Warned
from tfx_estimator.pipeline.runners.listener import NodeRun


def collect(results: Summary, folders: PipelineFolders) -> None:
    """Adds to a summary what the components came to, as far as they went."""
    outputs = _outputs(folders, [run for run in results.components if run.execution_id])
    if examples := outputs.get("TfdsExampleGen", {}).get("examples"):
        _read_examples(results, examples)
    if model_run := outputs.get("Trainer", {}).get("model_run"):
        results.model_run = model_run.uri
        results.training = {
            name: value.double_value
            for name, value in model_run.mlmd_artifact.custom_properties.items()
            if value.HasField("double_value")
        }
        results.exported = model_run.get_string_custom_property("exported") or None
        results.stopped_early = model_run.get_string_custom_property("stopped_early") or None
        results.learning_rate = model_run.get_string_custom_property("learning_rate") or None
        found = glob.glob(os.path.join(glob.escape(model_run.uri), PROFILES, "*", PROFILE_TEXT))
        results.profiles = {os.path.basename(os.path.dirname(path)): os.path.dirname(path) for path in sorted(found)}
        history = model_run.get_string_custom_property("history")
        known = {warned.text for warned in results.warnings}
        # A training that was done before, or that goes on, is not checked again.
        notes = [note for note in read_notes(model_run.uri) if note not in known]
        results.warnings += [Warned("Trainer", note) for note in notes]
        results.restarts = [str(Restart(**each)) for each in json.loads(history or "[]")]
    evaluator = outputs.get("Evaluator", {})
    if evaluation := evaluator.get("evaluation"):
        _read_evaluation(results, evaluation.uri)
    if blessing := evaluator.get("blessing"):
        results.blessed = blessing.get_int_custom_property("blessed") == 1
    pushed = outputs.get("Pusher", {}).get("pushed_model")
    if pushed and pushed.get_int_custom_property("pushed") == 1:
        results.pushed = pushed.get_string_custom_property("pushed_destination")


def _outputs(folders: PipelineFolders, runs: list[NodeRun]) -> dict[str, dict[str, Artifact]]:
    """The output artifacts by component and channel."""
    with metadata.Metadata(metadata.sqlite_metadata_connection_config(folders.metadata)) as handle:
        store = handle.store
        nodes = {run.execution_id: run.node for run in runs}
        events = [
            event
            for event in store.get_events_by_execution_ids(list(nodes))
            if event.type == metadata_store_pb2.Event.OUTPUT
        ]
        artifacts = {artifact.id: artifact for artifact in store.get_artifacts_by_id([e.artifact_id for e in events])}
        types = {kind.id: kind for kind in store.get_artifact_types()}
    outputs: dict[str, dict[str, Artifact]] = {}
    for event in events:
        artifact = artifacts[event.artifact_id]
        channel = event.path.steps[0].key
        outputs.setdefault(nodes[event.execution_id], {})[channel] = deserialize_artifact(
            types[artifact.type_id], artifact
        )
    return outputs


def _read_examples(results: Summary, examples: Artifact) -> None:
    name, version = examples.get_string_custom_property("dataset"), examples.get_string_custom_property("version")
    results.dataset = f"{name} {version}".strip()
    results.label_names = label_names(examples)
    for split in decode_split_names(examples.split_names):
        results.examples[split] = examples.get_int_custom_property(f"num_examples_{split}")
        results.evaluated_split = split  # the last: `test` where there is one


def _read_evaluation(results: Summary, uri: str) -> None:
    import tensorflow_model_analysis as tfma

    for key, metrics in tfma.load_eval_result(uri).slicing_metrics:
        values = dict(_numbers(metrics))
        accuracy, count = values.get(ACCURACY), int(values.get(COUNT, 0))
        if not key:
            results.metrics = values
            results.accuracy, results.evaluated, results.loss = accuracy, count, values.get(LOSS)
        elif accuracy is not None:
            # Sliced by one feature at a time.
            ((name, value),) = key
            results.slices.setdefault(name, {})[str(value)] = (accuracy, count)
    if any(name.startswith("validations") for name in os.listdir(uri)):
        validation = tfma.load_validation_result(uri)
        results.reasons = [_reason(failure) for s in validation.metric_validations_per_slice for failure in s.failures]


def _numbers(metrics: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """The metrics that are one number each; those of an output or a class of their own have it before their name."""
    for output, subkeys in metrics.items():
        for subkey, values in subkeys.items():
            for name, value in values.items():
                if "doubleValue" in value:
                    # As JSON of protocol buffers, which writes NaN as text.
                    yield "/".join(filter(None, (output, subkey, name))), float(value["doubleValue"])


def _reason(failure: Any) -> str:
    """One missed threshold in words."""
    name = failure.metric_key.name.removeprefix("sparse_categorical_")
    value = failure.metric_value.double_value.value
    threshold = failure.metric_threshold
    if threshold.HasField("value_threshold"):
        return f"{name} {value:.4f} is below {threshold.value_threshold.lower_bound.value:.4f}"
    allowed = -threshold.change_threshold.absolute.value
    return f"{name} changed by {value:+.4f} against the latest blessed model, allowed is -{allowed:.4f}"
