"""A metric of TFMA: how much better a model is than the best constant prediction."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Optional

import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.metrics import metric_types, metric_util

from tfx_estimator.pipeline.config.evaluator import SKILL
from tfx_estimator.pipeline.config.task import CLASSES, REGRESSION

# As Keras clips probabilities, to avoid log(0).
_SMALLEST = 1e-7


class Skill(metric_types.Metric):
    """1 - a model's loss / the loss of the constant that predicts the same examples best.

    The loss is the squared error for a regression, whose best constant is the mean of the labels; else the
    cross-entropy, whose best constant is the share of each class. 1 is perfect, 0 no better than the constant.
    nan where a constant is perfect.
    """

    def __init__(self, task: str, name: str = SKILL.lower()) -> None:
        super().__init__(metric_util.merge_per_key_computations(_computations), name=name, task=task)


def kind_of(config: tfma.EvalConfig) -> Optional[str]:
    """Returns the kind of task that a configuration's Skill is of; None without one."""
    metrics = (metric for spec in config.metrics_specs for metric in spec.metrics)
    return next((json.loads(metric.config)["task"] for metric in metrics if metric.class_name == SKILL), None)


@dataclass
class _Sums:
    """Weighted sums over examples."""

    weight: float = 0.0
    loss: float = 0.0
    # Of each class.
    weights: dict[int, float] = field(default_factory=dict)
    # Of a regression's labels; the squares are of the distances from the mean.
    mean: float = 0.0
    squares: float = 0.0

    def add(self, other: _Sums) -> None:
        """Adds the sums of other examples, by Chan's formula for the squares."""
        total, apart = self.weight + other.weight, other.mean - self.mean
        if total:
            self.squares += other.squares + apart**2 * self.weight * other.weight / total
            self.mean += apart * other.weight / total
        self.weight, self.loss = total, self.loss + other.loss
        for label, weight in other.weights.items():
            self.weights[label] = self.weights.get(label, 0.0) + weight

    def constant_loss(self) -> float:
        """Returns the sum of the best constant's losses."""
        return self.squares - sum(each * math.log(each / self.weight) for each in self.weights.values() if each)


class _Combiner(beam.CombineFn):
    def __init__(self, key: metric_types.MetricKey, task: str, eval_config: Any, weighted: bool) -> None:
        self._key, self._task, self._config, self._weighted = key, task, eval_config, weighted

    def create_accumulator(self) -> _Sums:
        return _Sums()

    def add_input(self, sums: _Sums, element: Any) -> _Sums:
        found = metric_util.to_label_prediction_example_weight(
            element,
            eval_config=self._config,
            model_name=self._key.model_name,
            output_name=self._key.output_name,
            example_weighted=self._weighted,
            flatten=False,
            require_single_example_weight=True,
        )
        for labels, predictions, weights in found:
            label, weight = float(np.ravel(labels)[0]), float(np.ravel(weights)[0])
            scores = np.ravel(predictions).astype(np.float64)
            if self._task == REGRESSION:
                sums.add(_Sums(weight, weight * (label - scores[0]) ** 2, mean=label))
                continue
            chosen = int(label)
            likelihood = scores[chosen] if self._task == CLASSES else scores[0] if chosen else 1 - scores[0]
            # Not by max(), for which nan is small.
            loss = -math.log(np.clip(likelihood, _SMALLEST, 1))
            sums.add(_Sums(weight, weight * loss, {chosen: weight}))
        return sums

    def merge_accumulators(self, accumulators: Iterable[_Sums]) -> _Sums:
        merged = _Sums()
        for each in accumulators:
            merged.add(each)
        return merged

    def extract_output(self, sums: _Sums) -> dict[metric_types.MetricKey, float]:
        constant = sums.constant_loss()
        return {self._key: 1 - sums.loss / constant if constant > 0 else math.nan}


def _computations(
    task: str,
    name: str,
    eval_config: Any = None,
    model_name: str = "",
    output_name: str = "",
    example_weighted: bool = False,
) -> metric_types.MetricComputations:
    key = metric_types.MetricKey(
        name=name, model_name=model_name, output_name=output_name, example_weighted=example_weighted
    )
    combiner = _Combiner(key, task, eval_config, example_weighted)
    return [metric_types.MetricComputation(keys=[key], preprocessors=None, combiner=combiner)]
