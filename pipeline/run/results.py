"""Reads from ML Metadata and the artifacts what a run came to."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

from ml_metadata.proto import metadata_store_pb2
from tfx.orchestration import metadata
from tfx.types import Artifact
from tfx.types.artifact_utils import deserialize_artifact

from tfx_estimator.components.tfds_example_gen.properties import label_names
from tfx_estimator.components.trainer.supervisor.outcome import Restart
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.runners.local import NodeRun


@dataclass
class Results:
    """What a run came to.

    Args:
        components: How each component went.
        examples: Number of examples, by split.
        dataset: Name and version.
        accuracy: Of the Evaluator, overall.
        loss: Mean cross-entropy, overall.
        evaluated: Number of examples that the Evaluator read.
        slices: Accuracy and number of examples by feature and value.
        label_names: The classes, in the order of their labels.
        blessed: None without an evaluation.
        reasons: Why not blessed.
        pushed: Folder of the pushed model, if one was.
        model_run: Checkpoints, TensorBoard events and logs of the training.
        training: Facts of the training: steps, seconds, rate.
        restarts: What went wrong with a task, and what it cost; a line each.
    """

    components: list[NodeRun]
    examples: dict[str, int] = field(default_factory=dict)
    dataset: str = ""
    accuracy: Optional[float] = None
    loss: Optional[float] = None
    evaluated: int = 0
    slices: dict[str, dict[str, tuple[float, int]]] = field(default_factory=dict)
    label_names: tuple[str, ...] = ()
    blessed: Optional[bool] = None
    reasons: list[str] = field(default_factory=list)
    pushed: Optional[str] = None
    model_run: Optional[str] = None
    training: dict[str, float] = field(default_factory=dict)
    restarts: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Returns what JSON can hold: what is not a number is null."""
        return _finite(asdict(self))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def collect(folders: PipelineFolders, runs: Iterable[NodeRun]) -> Results:
    """Collects the results of a run, from its components as far as they went."""
    results = Results(list(runs))
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
        history = model_run.get_string_custom_property("history")
        results.restarts = [str(Restart(**each)) for each in json.loads(history or "[]")]
    evaluator = outputs.get("Evaluator", {})
    if evaluation := evaluator.get("evaluation"):
        _read_evaluation(results, evaluation.uri)
    if blessing := evaluator.get("blessing"):
        results.blessed = blessing.get_int_custom_property("blessed") == 1
    pushed = outputs.get("Pusher", {}).get("pushed_model")
    if pushed and pushed.get_int_custom_property("pushed") == 1:
        results.pushed = pushed.get_string_custom_property("pushed_destination")
    return results


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


def _read_examples(results: Results, examples: Artifact) -> None:
    name, version = examples.get_string_custom_property("dataset"), examples.get_string_custom_property("version")
    results.dataset = f"{name} {version}".strip()
    results.label_names = label_names(examples)
    for split in ("train", "eval"):
        results.examples[split] = examples.get_int_custom_property(f"num_examples_{split}")


def _read_evaluation(results: Results, uri: str) -> None:
    import tensorflow_model_analysis as tfma

    for key, metrics in tfma.load_eval_result(uri).slicing_metrics:
        values = {name: value.get("doubleValue") for name, value in metrics[""][""].items()}
        accuracy, count = values["sparse_categorical_accuracy"], int(values["example_count"] or 0)
        if key:
            # Sliced by one feature at a time.
            ((name, value),) = key
            results.slices.setdefault(name, {})[str(value)] = (accuracy, count)
        else:
            results.accuracy, results.evaluated = accuracy, count
            results.loss = values["sparse_categorical_crossentropy"]
    if any(name.startswith("validations") for name in os.listdir(uri)):
        validation = tfma.load_validation_result(uri)
        results.reasons = [_reason(failure) for s in validation.metric_validations_per_slice for failure in s.failures]


def _reason(failure: Any) -> str:
    """One missed threshold in words."""
    name = failure.metric_key.name.removeprefix("sparse_categorical_")
    value = failure.metric_value.double_value.value
    threshold = failure.metric_threshold
    if threshold.HasField("value_threshold"):
        return f"{name} {value:.4f} is below {threshold.value_threshold.lower_bound.value:.4f}"
    allowed = -threshold.change_threshold.absolute.value
    return f"{name} changed by {value:+.4f} against the latest blessed model, allowed is -{allowed:.4f}"
