"""Tells TFMA where a model's scores are, what they are, and what is to be extracted beside its own."""

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

# It is all the same to them.
_OF_ORDER = ("SparseTopKCategoricalAccuracy", "WeightedExampleCount")
# The class that one score for two classes is of.
_SECOND = 1
_ACCURACY, _LOSS = "SparseCategoricalAccuracy", "SparseCategoricalCrossentropy"
# Metrics of one score for two classes; they keep the names, by which the results, and an earlier model's, know them.
_OF_TWO = {_ACCURACY: ("BinaryAccuracy", "sparse_categorical_accuracy")}
_OF_TWO[_LOSS] = ("BinaryCrossentropy", "sparse_categorical_crossentropy")


def complete(config: tfma.EvalConfig, candidate: Scores, baseline: Optional[Scores]) -> None:
    """Completes a configuration, in place, by the scores of the model that is evaluated, and of its baseline."""
    spec = config.model_specs[0]
    spec.prediction_key = candidate.key
    if candidate.of_two:
        # There is one score, which is of the second class, and nothing to part or to sum up.
        for each in config.metrics_specs:
            _require_second(each, candidate.key)
            each.ClearField("binarize")
            each.ClearField("aggregate")
    metrics = [metric for each in config.metrics_specs for metric in each.metrics]
    for metric in metrics:
        _tell(metric, candidate)
    if baseline is None or baseline == candidate:
        # TFX makes the baseline's spec of the candidate's.
        return
    if baseline.of_two != candidate.of_two:
        raise UserCodeError(
            f"the model's scores are in `{candidate.key}`, those of the latest blessed model in `{baseline.key}`, and "
            "one of them has a score for each class, the other one for both: they cannot be compared",
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
    """Refuses metrics of the first of two classes, whose thresholds would be held against those of the second."""
    others = [label for label in spec.binarize.class_ids.values if label != _SECOND]
    if others:
        raise UserCodeError(
            f"evaluator.metrics: {', '.join(metric.class_name for metric in spec.metrics)} binarize the class "
            f"{others[0]}, and the model has one score for its two classes, `{key}`, which is that of class {_SECOND}",
            expected=f"binarize: [{_SECOND}], or no binarize, which is the same here; or a score for each class",
            todo="remove the other class from binarize; or set evaluator.prediction_key to an output with a score for "
            "each class",
        )


def reads_probabilities(config: tfma.EvalConfig) -> bool:
    """Tells whether a metric takes scores for probabilities, and no option says that they are logits."""
    metrics = [metric for each in config.metrics_specs for metric in each.metrics]
    if any(_of_logits(json.loads(metric.config or "{}")) for metric in metrics):
        return False
    return not {metric.class_name for metric in metrics} <= {*BUILT_IN, *_OF_ORDER}


def _of_logits(options: dict[str, Any]) -> bool:
    thresholds = options.get("thresholds", options.get("threshold"))
    values = thresholds if isinstance(thresholds, list) else [thresholds]
    # 0 by itself is where logits are parted; among others it is the first point of probabilities.
    beyond = values == [0] or any(isinstance(value, (int, float)) and not 0 <= value <= 1 for value in values)
    return bool(options.get("from_logits")) or beyond


def _tell(metric: tfma.MetricConfig, scores: Scores) -> None:
    """Tells one metric what the scores are."""
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
    """Measures no loss of a baseline whose scores are of another kind: one metric reads both models alike."""
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
    """What is to be extracted."""

    transform_graph: Optional[str] = None  # folder of the graph, where a feature is wanted
    features: tuple[str, ...] = ()  # of what it returns
    # Output with logits, by model name, which is empty where there is no baseline.
    logits: Mapping[str, str] = field(default_factory=dict)
    of_two: bool = False  # are they one number an example

    def __bool__(self) -> bool:
        return bool(self.features or self.logits)


# TFX calls `custom_extractors` by its name, and reloads the module that it is in.
_EXTRAS: ContextVar[Extras] = ContextVar("extras")


@contextlib.contextmanager
def extracting(extras: Extras) -> Iterator[None]:
    """Has `custom_extractors` extract it, within the context."""
    token = _EXTRAS.set(extras)
    try:
        yield
    finally:
        _EXTRAS.reset(token)


def current() -> Extras:
    """Returns what the context is to extract."""
    return _EXTRAS.get()
