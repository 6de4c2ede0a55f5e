"""Reads from ML Metadata and the artifacts what a run came to."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from ml_metadata.proto import metadata_store_pb2
from tfx.dsl.io import fileio
from tfx.orchestration import metadata
from tfx.types import Artifact
from tfx.types.artifact_utils import decode_split_names, deserialize_artifact

from tfx_estimator.components.baseline_resolver import DROPPED
from tfx_estimator.components.tfds_example_gen.properties import DATASET, LABEL_NAMES, label_names
from tfx_estimator.components.trainer.replica_check import verdict
from tfx_estimator.components.trainer.supervisor.outcome import Restart
from tfx_estimator.data.features import LABEL
from tfx_estimator.pipeline.config.runtime import PROFILE_TEXT, PROFILES
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.report.metrics import CROSSED
from tfx_estimator.pipeline.report.tuning import read_tuning
from tfx_estimator.pipeline.run.summary import ACCURACY, COUNT, LOSS, Summary, Warned
from tfx_estimator.pipeline.runners.listener import NodeRun

# The results call the built-in metrics by their names without this prefix.
_PREFIX = "sparse_categorical_"

EXAMPLE_GEN = "TfdsExampleGen"
# TFMA puts this before the name of an aggregated metric.
_OF_MEAN = re.compile(r"^\w+_average: true\n_")


def collect(results: Summary, folders: PipelineFolders) -> None:
    """Adds to a summary what the components came to, as far as they went."""
    with metadata.Metadata(metadata.sqlite_metadata_connection_config(folders.metadata)) as handle:
        outputs = _outputs(handle.store, [run for run in results.components if run.execution_id])
        if any(run.node == EXAMPLE_GEN and run.state == "ran" for run in results.components):
            results.warnings += _reordered(handle.store, outputs.get(EXAMPLE_GEN, {}).get("examples"))
    add_outputs_to(results, outputs)


def add_outputs_to(results: Summary, outputs: Mapping[str, Mapping[str, Artifact]]) -> None:
    """Adds to a summary what the components came to.

    Args:
        results: The summary; how the components went is in it already.
        outputs: The output artifacts, by component and channel.
    """
    if examples := outputs.get(EXAMPLE_GEN, {}).get("examples"):
        _read_examples(results, examples)
    if tuned := outputs.get("Tuner", {}).get("tuner_results"):
        results.tuning = read_tuning(tuned.uri)
    if model_run := outputs.get("Trainer", {}).get("model_run"):
        results.model_run = model_run.uri
        results.training = {
            name: model_run.get_float_custom_property(name)
            for name, value in model_run.mlmd_artifact.custom_properties.items()
            # The numbers of a PipelineSpec are JSON's.
            if value.HasField("double_value") or isinstance(model_run.get_json_value_custom_property(name), float)
        }
        results.exported = model_run.get_string_custom_property("exported") or None
        results.stopped_early = model_run.get_string_custom_property("stopped_early") or None
        results.learning_rate = model_run.get_string_custom_property("learning_rate") or None
        results.stages = model_run.get_string_custom_property("stages") or None
        found = fileio.glob(os.path.join(model_run.uri, PROFILES, "*", PROFILE_TEXT))
        # A profile that is there may be of an earlier run; only one of this run counts.
        found = found if any(run.node == "Trainer" and run.state == "ran" for run in results.components) else []
        results.profiles = {os.path.basename(os.path.dirname(path)): os.path.dirname(path) for path in sorted(found)}
        history = model_run.get_string_custom_property("history")
        known = {warned.text for warned in results.warnings}
        # A training that was done before, or that goes on, is not checked again.
        told = verdict.read(model_run.uri)
        notes = [note for note in told.get("notes", ()) if note not in known]
        results.warnings += [Warned("Trainer", note) for note in notes]
        if batch := told.get("batch"):
            results.notes = [*results.notes, f"Trainer: {batch}"]
        results.restarts = [str(Restart(**each)) for each in json.loads(history or "[]")]
    evaluator = outputs.get("Evaluator", {})
    if evaluation := evaluator.get("evaluation"):
        results.baseline_dropped = evaluation.get_string_custom_property(DROPPED) or None
        _read_evaluation(results, evaluation.uri)
    if blessing := evaluator.get("blessing"):
        results.blessed = blessing.get_int_custom_property("blessed") == 1
    pushed = outputs.get("Pusher", {}).get("pushed_model")
    if pushed and pushed.get_int_custom_property("pushed") == 1:
        results.pushed = pushed.get_string_custom_property("pushed_destination")


def _outputs(store: Any, runs: list[NodeRun]) -> dict[str, dict[str, Artifact]]:
    """The output artifacts by component and channel."""
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


def _reordered(store: Any, examples: Optional[Artifact]) -> Iterator[Warned]:
    """Says that labels mean other classes than in the examples that were made of this data set before."""
    if examples is None:
        return
    made = (each.custom_properties for each in store.get_artifacts_by_type(examples.type_name) if each.id < examples.id)
    dataset = examples.get_string_custom_property(DATASET)
    earlier = [each[LABEL_NAMES].string_value for each in made if each[DATASET].string_value == dataset]
    if not earlier or not earlier[-1]:
        return
    before, now = json.loads(earlier[-1]), label_names(examples)
    if [name for name in before if name in now] != [name for name in now if name in before]:
        label = next(label for label, (old, new) in enumerate(zip(before, now)) if old != new)
        yield Warned(
            EXAMPLE_GEN,
            f"the classes are in another order than in the examples before: label {label} is {now[label]!r}, and was "
            f"{before[label]!r}; a model that was trained on those answers in their order",
        )


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
        values = dict(numbers_of(metrics))
        accuracy, count = values.get(ACCURACY), int(values.get(COUNT, 0))
        if not key:
            results.metrics = values
            results.accuracy, results.evaluated, results.loss = accuracy, count, values.get(LOSS)
            continue
        name, value = (CROSSED.join(str(part) for part in parts) for parts in zip(*key))
        if accuracy is not None:
            results.slices.setdefault(name, {})[value] = (accuracy, count)
        results.slice_metrics.setdefault(name, {})[value] = values
    if any(name.startswith("validations") for name in fileio.listdir(uri)):
        validation = tfma.load_validation_result(uri)
        results.reasons = list(read_reasons(validation, results.label_names))


def numbers_of(metrics: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Yields the metrics that are one number each; those of an output or a class have it before their name.

    Args:
        metrics: Of a slice, as TFMA loads them.
    """
    for output, subkeys in metrics.items():
        for subkey, values in subkeys.items():
            for name, value in values.items():
                if "doubleValue" in value:
                    # JSON of protocol buffers writes NaN as text, which float() reads. The prefix of an aggregated
                    # metric is dropped.
                    name = _OF_MEAN.sub("", name)
                    yield "/".join(filter(None, (output, subkey, name))), float(value["doubleValue"])


def read_reasons(validation: Any, label_names: Sequence[str]) -> Iterator[str]:
    """Words what was missed.

    Args:
        label_names: The classes, in the order of their labels.

    Yields:
        The reasons, those of all examples first.
    """
    told = sorted(validation.metric_validations_per_slice, key=lambda each: len(each.slice_key.single_slice_keys))
    for each in told:
        parts = [f"{key.column} {_value(key, label_names)}" for key in each.slice_key.single_slice_keys]
        where = f" of {' x '.join(parts)}" if parts else ""
        for failure in each.failures:
            yield _reason(failure, label_names, where)
    for missing in validation.missing_slices:
        values = [
            f"{name} {_title(name, value, label_names)}" for name, value in sorted(missing.feature_values.items())
        ]
        yield f"no example is of {' x '.join([*missing.feature_keys, *values])}, which a threshold is for"


def _value(key: Any, label_names: Sequence[str]) -> str:
    """The value that a slice has; a class by its name."""
    value = getattr(key, key.WhichOneof("kind"))
    return _title(key.column, value.decode() if isinstance(value, bytes) else str(value), label_names)


def _title(name: str, value: str, label_names: Sequence[str]) -> str:
    is_class = name == LABEL and value.isdigit() and int(value) < len(label_names)
    return label_names[int(value)] if is_class else value


def _reason(failure: Any, label_names: Sequence[str], where: str) -> str:
    key = failure.metric_key
    name = key.name.removeprefix(_PREFIX)
    if key.sub_key.HasField("class_id"):
        label = key.sub_key.class_id.value
        name += f" of class {label_names[label] if label < len(label_names) else label}"
    elif key.sub_key.HasField("top_k"):
        name += f" at top {key.sub_key.top_k.value}"
    name += where
    threshold, value = failure.metric_threshold, failure.metric_value.double_value.value
    if not failure.metric_value.WhichOneof("type"):
        return f"{name} was not measured"
    if threshold.HasField("value_threshold"):
        limits = threshold.value_threshold
        # NaN is neither above nor below a limit.
        if limits.HasField("upper_bound") and value > limits.upper_bound.value:
            return f"{name} {value:.4f} is above {limits.upper_bound.value:.4f}"
        if limits.HasField("lower_bound"):
            return f"{name} {value:.4f} is below {limits.lower_bound.value:.4f}"
        return f"{name} {value:.4f} is not at most {limits.upper_bound.value:.4f}"
    change = threshold.change_threshold
    allowed = [f"{change.absolute.value:+.4f}"] if change.HasField("absolute") else []
    allowed += [f"{100 * change.relative.value:+.2f} %"] if change.HasField("relative") else []
    return f"{name} changed by {value:+.4f} against the latest blessed model, allowed is {' and '.join(allowed)}"
