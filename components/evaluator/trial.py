"""Tries metrics on a few made-up predictions, without Beam: what TFMA cannot measure is told before it matters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.metrics import metric_specs, metric_types

from tfx_estimator.components.evaluator.extractors import find_averaged
from tfx_estimator.data.features import LABEL
from tfx_estimator.pipeline.errors import DeclarationError
from tfx_estimator.pipeline.text import one_line

_EACH, _LEAST = 3, 8
_MOST_CLASSES = 1000


def try_metrics(config: tfma.EvalConfig, num_classes: int) -> None:
    """Measures made-up predictions.

    Args:
        config: The metrics; what it says of models and slices is passed over.
        num_classes: Of the data.

    Raises:
        DeclarationError: TFMA cannot make a metric, or not measure it; or a threshold is of what is no number.
    """
    for spec in config.metrics_specs:
        for metric in spec.metrics:
            alone = tfma.MetricsSpec()
            alone.CopyFrom(spec)
            del alone.metrics[:], alone.model_names[:]
            alone.metrics.add().CopyFrom(metric)
            # Of what a preprocessing_fn returns nothing is made up.
            if {*find_averaged(tfma.EvalConfig(metrics_specs=[alone]))} - {LABEL}:
                continue
            one = tfma.EvalConfig(model_specs=[tfma.ModelSpec(label_key=LABEL)], metrics_specs=[alone])
            try:
                measured = _measure(one, num_classes)
                thresholds = metric_specs.metric_thresholds_from_metrics_specs(one.metrics_specs, eval_config=one)
            except Exception as error:  # whatever TFMA and Keras raise
                raise _refusal(metric, f"cannot be measured: {one_line(str(error))[:300]}") from error
            for key in thresholds:
                value = measured.get(key._replace(is_diff=False) if key.is_diff else key)
                if not isinstance(value, (int, float, np.number)):
                    raise _refusal(metric, "has a threshold, and is no single number")


def _refusal(metric: tfma.MetricConfig, what: str) -> DeclarationError:
    options = f" with {metric.config}" if metric.config else ""
    return DeclarationError(
        f"evaluator.metrics: {metric.class_name}{options} {what}",
        expected="a metric, and options, that TFMA can measure of scores and a label for each example",
        todo="correct its options, or remove it; see https://www.tensorflow.org/tfx/model_analysis/metrics",
    )


def _measure(config: tfma.EvalConfig, num_classes: int) -> dict[Any, Any]:
    """What TFMA's pipeline computes of one slice, by MetricKey."""
    found: dict[Any, Any] = {}
    derived, seen = [], set()
    for computation in metric_specs.to_computations(list(config.metrics_specs), config):
        if isinstance(computation, metric_types.DerivedMetricComputation):
            derived.append(computation)
        elif isinstance(computation, metric_types.MetricComputation) and computation not in seen:
            seen.add(computation)
            combiner = computation.combiner
            combiner.setup()
            gathered = combiner.create_accumulator()
            for each in _examples(num_classes):
                gathered = combiner.add_input(gathered, each)
            found.update(combiner.extract_output(combiner.compact(gathered)))
    for computation in derived:
        found.update(computation.result(found))
    return found


def _examples(num_classes: int) -> Iterator[Any]:
    random = np.random.default_rng(0)
    classes = min(num_classes, _MOST_CLASSES)
    for number in range(max(_LEAST, _EACH * min(classes, 20))):
        label = number % classes
        scores = random.dirichlet(np.ones(num_classes)).astype(np.float32)
        yield metric_types.StandardMetricInputs(
            {
                "labels": np.array([label]),
                "predictions": scores,
                "example_weights": np.array([1.0]),
                "features": {LABEL: np.array([label])},
            }
        )
