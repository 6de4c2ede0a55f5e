"""The declared metrics of what a model answered, overall, as the Evaluator measures them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfx_estimator.pipeline.compare.candidates import Candidate
from tfx_estimator.pipeline.config.evaluator import EvaluatorSection, long_metrics

_METRICS = "evaluator.metrics"
_PREDICTION, _LABEL = "prediction", "label"
# An option of metrics that read another feature than scores and label.
_OF_FEATURES = "feature_key_path"
_OF_BLESSING = ("threshold", "change_threshold", "slices")
# Metrics that are measured for every candidate anyway.
_BUILT_IN = ("sparse_categorical_accuracy", "sparse_categorical_crossentropy", "example_count")


def declared_metrics(candidates: Sequence[Candidate]) -> list[Mapping[str, Any]]:
    """Returns the metrics that any of the candidates declares, without thresholds."""
    found: list[Mapping[str, Any]] = []
    for candidate in candidates:
        for metric in long_metrics(candidate.values.get(_METRICS) or ()):
            bare = {key: value for key, value in metric.items() if key not in _OF_BLESSING}
            if bare not in found and _OF_FEATURES not in (bare.get("options") or {}):
                found.append(bare)
    return found


def measure_all(
    metrics: Sequence[Mapping[str, Any]], labels: np.ndarray, probabilities: np.ndarray, *rest: Any
) -> tuple[dict[str, float], list[str]]:
    """Measures what fits a model: one metric may be made for another candidate's outputs.

    Args:
        labels: As of `measure`.
        probabilities: As of `measure`.
        *rest: As of `measure`.

    Returns:
        The numbers by name; and why some are not there.
    """
    try:
        return measure(metrics, labels, probabilities, *rest), []
    except Exception:  # TFMA and Keras tell a metric that does not fit in many ways
        found: dict[str, float] = {}
        notes = []
        for metric in metrics:
            try:
                found |= measure([metric], labels, probabilities, *rest)
            except Exception as error:
                # Beam adds lines of its own; the first one is the error's.
                why = (str(error).strip() or type(error).__name__).splitlines()[0]
                notes.append(f"The metric {metric['name']} was not measured: {why}")
        return found, notes


def measure(
    metrics: Sequence[Mapping[str, Any]],
    labels: np.ndarray,
    probabilities: np.ndarray,
    label_names: Sequence[str],
    of_two: bool = False,
) -> dict[str, float]:
    """Measures, in this process.

    Args:
        labels: int64 [examples].
        probabilities: float32 [examples, classes].
        label_names: The classes, in the order of their labels.
        of_two: Does the model serve one score, that of the second of two classes.

    Returns:
        The numbers by name, as the Evaluator has them.
    """
    import pandas as pd
    import tensorflow_model_analysis as tfma

    from tfx_estimator.components.evaluator.completion import complete
    from tfx_estimator.components.evaluator.eval_config import eval_config
    from tfx_estimator.components.served_outputs import Scores
    from tfx_estimator.pipeline.run.results import numbers_of

    config = eval_config(EvaluatorSection.parse_obj({"metrics": metrics, "slices": ()}), label_names)
    for each in config.metrics_specs:
        for metric in each.metrics:
            metric.ClearField("per_slice_thresholds")
    complete(config, Scores(_PREDICTION, of_two=of_two), None)
    config.model_specs[0].label_key = _LABEL
    predictions = probabilities[:, 1] if of_two else list(probabilities)
    data = pd.DataFrame({_LABEL: labels, _PREDICTION: predictions})
    with tempfile.TemporaryDirectory(prefix="tfx-estimator-") as folder:
        found = tfma.analyze_raw_data(data, config, folder)
        (overall,) = (values for key, values in found.slicing_metrics if not key)
    return {name: value for name, value in numbers_of(overall) if name not in _BUILT_IN}
