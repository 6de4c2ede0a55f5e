"""Configures TFMA for a model's scores: their output, their kind, and additional extracts."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Optional

import tensorflow_model_analysis as tfma

from tfx_estimator.components.served_outputs import Scores
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.evaluator import BUILT_IN

# Equal for logits and probabilities.
_OF_ORDER = ("SparseTopKCategoricalAccuracy", "WeightedExampleCount")
# The class of a single score for two classes.
_SECOND = 1
_ACCURACY, _LOSS = "SparseCategoricalAccuracy", "SparseCategoricalCrossentropy"
# Metrics of a single score for two classes; they keep the sparse metrics' names, which results and baselines use.
_OF_TWO = {_ACCURACY: ("BinaryAccuracy", "sparse_categorical_accuracy")}
_OF_TWO[_LOSS] = ("BinaryCrossentropy", "sparse_categorical_crossentropy")


def complete(config: tfma.EvalConfig, candidate: Scores, baseline: Optional[Scores]) -> None:
    """Completes a configuration, in place, for the scores of the candidate and its baseline."""
    spec = config.model_specs[0]
    spec.prediction_key = candidate.key
    if candidate.of_two:
        # A single score of the second class: there is nothing to binarize or to aggregate.
        for each in config.metrics_specs:
            _require_second(each, candidate.key)
            each.ClearField("binarize")
            each.ClearField("aggregate")
    metrics = [metric for each in config.metrics_specs for metric in each.metrics]
    for metric in metrics:
        _configure(metric, candidate)
    if baseline is None or baseline == candidate:
        # TFX derives the baseline's spec from the candidate's.
        return
    if baseline.of_two != candidate.of_two:
        raise UserCodeError(
            f"the model's scores are in `{candidate.key}`, those of the latest blessed model in `{baseline.key}`, and "
            "one has a score for each class, the other a single score for both: they cannot be compared",
            expected="scores of one form",
            todo="set evaluator.prediction_key to an output of the other form, or name another --workdir",
        )
    other = config.model_specs.add()
    other.CopyFrom(spec)
    spec.name, other.name = tfma.CANDIDATE_KEY, tfma.BASELINE_KEY
    other.prediction_key, other.is_baseline = baseline.key, True
    if baseline.from_logits != candidate.from_logits:
        _only_for_the_candidate(config)


def _require_second(spec: tfma.MetricsSpec, key: str) -> None:
    """Refuses metrics of the first of two classes: they would be computed for the second."""
    others = [label for label in spec.binarize.class_ids.values if label != _SECOND]
    if others:
        raise UserCodeError(
            f"evaluator.metrics: {', '.join(metric.class_name for metric in spec.metrics)} binarize the class "
            f"{others[0]}, but the model has a single score for its two classes, `{key}`, that of class {_SECOND}",
            expected=f"binarize: [{_SECOND}], or no binarize, which is the same here; or a score for each class",
            todo="remove the other class from binarize; or set evaluator.prediction_key to an output with a score for "
            "each class",
        )


def reads_probabilities(config: tfma.EvalConfig) -> bool:
    """Returns True if a metric reads the scores as probabilities, and no option marks them as logits."""
    metrics = [metric for each in config.metrics_specs for metric in each.metrics]
    if any(_of_logits(json.loads(metric.config or "{}")) for metric in metrics):
        return False
    return not {metric.class_name for metric in metrics} <= {*BUILT_IN, *_OF_ORDER}


def _of_logits(options: dict[str, Any]) -> bool:
    thresholds = options.get("thresholds", options.get("threshold"))
    values = thresholds if isinstance(thresholds, list) else [thresholds]
    # A single 0 is a threshold of logits; in a list it is the first point of probabilities.
    beyond = values == [0] or any(isinstance(value, (int, float)) and not 0 <= value <= 1 for value in values)
    return bool(options.get("from_logits")) or beyond


def _configure(metric: tfma.MetricConfig, scores: Scores) -> None:
    """Configures a sparse categorical metric for the kind of scores."""
    if metric.class_name not in _OF_TWO:
        return
    changes: dict[str, Any] = {}
    is_loss = metric.class_name == _LOSS
    if scores.of_two:
        metric.class_name, changes["name"] = _OF_TWO[metric.class_name]
    if scores.from_logits and is_loss:
        changes["from_logits"] = True
    elif scores.from_logits and scores.of_two:
        changes["threshold"] = 0.0
    if changes:
        metric.config = json.dumps({**changes, **json.loads(metric.config or "{}")})


def _only_for_the_candidate(config: tfma.EvalConfig) -> None:
    """Restricts losses to the candidate if the baseline's scores are of another kind: a metric reads both alike."""
    for each in list(config.metrics_specs):
        losses = [metric for metric in each.metrics if metric.class_name in (_LOSS, _OF_TWO[_LOSS][0])]
        if not losses:
            continue
        own = config.metrics_specs.add(model_names=[tfma.CANDIDATE_KEY])
        for metric in losses:
            own.metrics.add().CopyFrom(metric)
            each.metrics.remove(metric)
        each.model_names.extend([tfma.CANDIDATE_KEY, tfma.BASELINE_KEY])


@dataclass(frozen=True)
class Extras:
    """Additional extracts."""

    transform_graph: Optional[str] = None  # folder of the graph; None without features
    features: tuple[str, ...] = ()  # of the graph's outputs
    # Scores to convert to probabilities, by model name; the name is empty without a baseline.
    converted: Mapping[str, Scores] = field(default_factory=dict)
    second: bool = False  # True to convert to the probability of the second of two classes

    def __bool__(self) -> bool:
        return bool(self.features or self.converted)


# In this module, because TFX calls `custom_extractors` by name, and reloads its module.
_EXTRAS: ContextVar[Extras] = ContextVar("extras")


@contextlib.contextmanager
def extracting(extras: Extras) -> Iterator[None]:
    """Makes `custom_extractors` use the extras, within the context."""
    token = _EXTRAS.set(extras)
    try:
        yield
    finally:
        _EXTRAS.reset(token)


def current() -> Extras:
    """Returns the extras of the context."""
    return _EXTRAS.get()
