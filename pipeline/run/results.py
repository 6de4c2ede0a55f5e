"""Reads a run's results from its artifacts."""

from __future__ import annotations

import collections
import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from tfx.dsl.io import fileio
from tfx.utils import path_utils

from tfx_estimator.components.baseline_resolver import DROPPED
from tfx_estimator.components.tfds_example_gen.properties import DATASET, LABEL_NAMES, VERSION, num_examples
from tfx_estimator.components.trainer.replica_check import verdict
from tfx_estimator.components.trainer.supervisor.outcome import Restart
from tfx_estimator.data.features import LABEL
from tfx_estimator.pipeline.base.text import first_line
from tfx_estimator.pipeline.config.evaluator import LEAST_SKILL
from tfx_estimator.pipeline.config.runtime import PROFILE_TEXT, PROFILES
from tfx_estimator.pipeline.folders import PipelineFolders, open_store
from tfx_estimator.pipeline.report.artifacts import EXAMPLE_GEN, Output, Outputs, read_outputs, statistics_of
from tfx_estimator.pipeline.report.metrics import (
    ACCURACY,
    COUNT,
    CROSSED,
    LOSS,
    PREFIX,
    SKILL,
    metric_name,
    read_tuning,
    slice_name,
)
from tfx_estimator.pipeline.run.summary import Summary, Warned

# TFMA's prefix of an aggregated metric's name.
_OF_MEAN = re.compile(r"^\w+_average: true\n_")


def collect(results: Summary, folders: PipelineFolders) -> None:
    """Adds the components' results to a summary, as far as they ran."""
    outputs = read_outputs(
        folders.metadata, {run.execution_id: run.node for run in results.components if run.execution_id}
    )
    examples = outputs.get((EXAMPLE_GEN, "examples"))
    if examples and any(run.node == EXAMPLE_GEN and run.state == "ran" for run in results.components):
        results.warnings += _reordered(folders.metadata, examples)
    add_outputs(results, outputs)


def add_outputs(results: Summary, outputs: Outputs) -> None:
    """Adds the components' results to a summary, which has their states already."""
    if examples := outputs.get((EXAMPLE_GEN, "examples")):
        _read_examples(results, examples)
    elif not results.examples and (statistics := statistics_of(outputs, results.days)):
        counts = collections.Counter[str]()
        for each in statistics:
            counts.update(dict(_count(each)))
        results.examples = dict(counts)
        results.evaluated_split = next(reversed(results.examples), "")
    if tuned := outputs.get(("Tuner", "tuner_results")):
        results.tuning = read_tuning(tuned.uri)
    if model_run := outputs.get(("Trainer", "model_run")):
        _read_training(results, model_run)
    if model := outputs.get(("Trainer", "model")):
        results.model = path_utils.serving_model_dir(model.uri)
    if evaluation := outputs.get(("Evaluator", "evaluation")):
        results.baseline_dropped = evaluation.properties.get(DROPPED) or None
        _read_evaluation(results, evaluation.uri)
    if blessing := outputs.get(("Evaluator", "blessing")):
        results.blessed = blessing.properties.get("blessed") == 1
    pushed = outputs.get(("Pusher", "pushed_model"))
    if pushed and pushed.properties.get("pushed") == 1:
        results.pushed = pushed.properties.get("pushed_destination")


def add_readable_outputs(results: Summary, outputs: Outputs) -> list[str]:
    """Adds the components' results to a summary; returns a line for each artifact that cannot be read from here."""
    wrong = []
    for (task, key), artifact in outputs.items():
        try:
            add_outputs(results, {(task, key): artifact})
        except Exception as error:  # file systems and parsers have their own error classes
            wrong.append(f"{task}: {artifact.uri or key} cannot be read from here: {first_line(error)}")
    return wrong


def _reordered(database: str, examples: Output) -> Iterator[Warned]:
    """Yields a warning if labels mean other classes than in earlier examples of this data set."""
    made = [each.custom_properties for each in open_store(database).get_artifacts_by_type("Examples")]
    # This run's examples are the last.
    same = [each for each in made[:-1] if each[DATASET].string_value == examples.properties.get(DATASET)]
    if not same or not same[-1][LABEL_NAMES].string_value:
        return
    before, now = json.loads(same[-1][LABEL_NAMES].string_value), examples.read_json(LABEL_NAMES)
    if [name for name in before if name in now] != [name for name in now if name in before]:
        label = next(label for label, (old, new) in enumerate(zip(before, now)) if old != new)
        yield Warned(
            EXAMPLE_GEN,
            f"the order of the classes has changed since the previous examples: label {label} is {now[label]!r}, and "
            f"was {before[label]!r}; a model trained on those uses their order",
        )


def _read_examples(results: Summary, examples: Output) -> None:
    properties = examples.properties
    results.dataset = f"{properties.get(DATASET, '')} {properties.get(VERSION, '')}".strip()
    results.label_names = tuple(examples.read_json(LABEL_NAMES) or ())
    for split in examples.read_json("split_names") or ():
        results.examples[split] = int(properties.get(num_examples(split), 0))
        results.evaluated_split = split  # the last one: `test` if declared


def _count(statistics: Output) -> Iterator[tuple[str, int]]:
    """Yields the splits of a table and their numbers of examples."""
    from tensorflow_metadata.proto.v0 import statistics_pb2

    for split in statistics.read_json("split_names") or ():
        with fileio.open(os.path.join(statistics.uri, f"Split-{split}", "FeatureStats.pb"), "rb") as file:
            found = statistics_pb2.DatasetFeatureStatisticsList.FromString(file.read())
        yield split, sum(each.num_examples for each in found.datasets)


def _read_training(results: Summary, model_run: Output) -> None:
    properties = model_run.properties
    results.model_run = model_run.uri
    results.label_names = tuple(model_run.read_json(LABEL_NAMES) or results.label_names)
    results.training = {name: value for name, value in properties.items() if isinstance(value, float)}
    for name in ("exported", "stopped_early", "learning_rate", "stages"):
        setattr(results, name, properties.get(name) or None)
    results.restarts = [str(Restart(**each)) for each in model_run.read_json("history") or ()]
    # Existing profiles may be an earlier run's; only this run's count.
    if any(run.node == "Trainer" and run.state == "ran" for run in results.components):
        folders = map(os.path.dirname, fileio.glob(os.path.join(model_run.uri, PROFILES, "*", PROFILE_TEXT)))
        results.profiles = {os.path.basename(folder): folder for folder in sorted(folders)}
    known = {warned.text for warned in results.warnings}
    # A training that is cached or resumed is not checked again.
    checked = verdict.read(model_run.uri)
    results.warnings += [Warned("Trainer", note) for note in checked.get("notes", ()) if note not in known]
    if batch := checked.get("batch"):
        results.notes = [*results.notes, f"Trainer: {batch}"]


def _read_evaluation(results: Summary, uri: str) -> None:
    import tensorflow_model_analysis as tfma

    for key, metrics in tfma.load_eval_result(uri).slicing_metrics:
        values = dict(scalar_metrics(metrics))
        accuracy, count = values.get(ACCURACY), int(values.get(COUNT, 0))
        if not key:
            results.metrics = values
            results.accuracy, results.evaluated, results.loss = accuracy, count, values.get(LOSS)
            continue
        name, value = (CROSSED.join(str(part) for part in parts) for parts in zip(*key))
        if accuracy is not None:
            results.slices.setdefault(name, {})[value] = (accuracy, count)
        results.slice_metrics.setdefault(name, {})[value] = values
    of_label = results.slice_metrics.get(LABEL)
    absent = [name for label, name in enumerate(results.label_names) if of_label and str(label) not in of_label]
    if absent:
        what = f"the evaluated split has no example of {', '.join(absent)}: what is measured of each class is nan there"
        results.warnings.append(Warned("Evaluator", what))
    if any(name.startswith("validations") for name in fileio.listdir(uri)):
        validation = tfma.load_validation_result(uri)
        results.reasons = list(read_reasons(validation, results.label_names))


def scalar_metrics(metrics: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Yields the single-number metrics of a slice, as TFMA loads them; an output or class is a prefix of the name."""
    for output, subkeys in metrics.items():
        for subkey, values in subkeys.items():
            for name, value in values.items():
                if "doubleValue" in value:
                    # JSON of protocol buffers writes NaN as text, which float() reads. The prefix of an aggregated
                    # metric is dropped.
                    name = _OF_MEAN.sub("", name)
                    yield "/".join(filter(None, (output, subkey, name))), float(value["doubleValue"])


def read_reasons(validation: Any, label_names: Sequence[str]) -> Iterator[str]:
    """Yields why a model was not blessed, the overall reasons first.

    Args:
        label_names: The classes, in the order of their labels.
    """
    slices = sorted(validation.metric_validations_per_slice, key=lambda each: len(each.slice_key.single_slice_keys))
    for each in slices:
        parts = [f"{key.column} {_value(key, label_names)}" for key in each.slice_key.single_slice_keys]
        where = f" of {' x '.join(parts)}" if parts else ""
        for failure in each.failures:
            yield _reason(failure, label_names, where)
    for missing in validation.missing_slices:
        values = [
            f"{name} {slice_name(name, value, label_names)}" for name, value in sorted(missing.feature_values.items())
        ]
        yield f"no example is of {' x '.join([*missing.feature_keys, *values])}, which has a threshold"


def _value(key: Any, label_names: Sequence[str]) -> str:
    """Returns a slice's value; a class by its name."""
    value = getattr(key, key.WhichOneof("kind"))
    return slice_name(key.column, value.decode() if isinstance(value, bytes) else str(value), label_names)


def _reason(failure: Any, label_names: Sequence[str], where: str) -> str:
    key = failure.metric_key
    name = key.name.removeprefix(PREFIX)
    if key.sub_key.HasField("class_id"):
        name += f" of class {slice_name(LABEL, str(key.sub_key.class_id.value), label_names)}"
    elif key.sub_key.HasField("top_k"):
        name = metric_name(f"topK:{key.sub_key.top_k.value}/{name}", label_names)
    name += where
    threshold, value = failure.metric_threshold, failure.metric_value.double_value.value
    if not failure.metric_value.WhichOneof("type"):
        return f"{name} was not measured"
    if threshold.HasField("value_threshold"):
        limits = threshold.value_threshold
        # NaN is neither above nor below a limit.
        if limits.HasField("upper_bound") and value > limits.upper_bound.value:
            return f"{name} {value:.4f} is above {limits.upper_bound.value:.4f}"
        if key.name == SKILL and limits.lower_bound.value == LEAST_SKILL:
            return f"{name} {value:.4f} is not above 0: the model is no better than the constant predictor"
        if limits.HasField("lower_bound"):
            return f"{name} {value:.4f} is below {limits.lower_bound.value:.4f}"
        return f"{name} {value:.4f} is not at most {limits.upper_bound.value:.4f}"
    change = threshold.change_threshold
    allowed = [f"{change.absolute.value:+.4f}"] if change.HasField("absolute") else []
    allowed += [f"{100 * change.relative.value:+.2f} %"] if change.HasField("relative") else []
    return f"{name} changed by {value:+.4f} against the latest blessed model, allowed is {' and '.join(allowed)}"
