"""TFMA's configuration for a declared evaluator."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Union

import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.metrics import metric_types
from tensorflow_model_analysis.proto.config_pb2 import PerSliceMetricThreshold

from tfx_estimator.data.features import LABEL
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.evaluator import (
    ALL,
    BUILT_IN,
    EvaluatorSection,
    Metric,
    Slice,
    parse_held,
    parse_slice,
)
from tfx_estimator.pipeline.config.problems import nearest
from tfx_estimator.pipeline.user_data.names import find_label

_PATH = "evaluator.metrics"
# TFMA 0.46 misspells their names in the results, so the name is set explicitly.
_MISSPELT = {
    "CoefficientOfDiscrimination": "coefficient_of_discrimination",
    "RelativeCoefficientOfDiscrimination": "relative_coefficient_of_discrimination",
}
# Requires a list of thresholds.
_LISTED = "ConfusionMatrixAtThresholds"
# The only one of TFMA's own metrics that compares labels with scores as Keras does.
_AS_KERAS = "BinaryCrossEntropy"


def eval_config(section: EvaluatorSection, label_names: Sequence[str] = ()) -> tfma.EvalConfig:
    """Makes the configuration: metrics, slices and thresholds.

    See https://www.tensorflow.org/tfx/model_analysis/metrics.

    Args:
        label_names: The classes, in the order of their labels.

    Returns:
        Accuracy, mean loss, counts and the declared metrics, overall and per slice; a threshold applies overall,
        unless its metric names slices.
    """
    threshold = tfma.MetricThreshold(
        value_threshold=tfma.GenericValueThreshold(lower_bound={"value": section.min_accuracy}),
        change_threshold=None
        if section.max_accuracy_drop is None
        else tfma.GenericChangeThreshold(
            direction=tfma.MetricDirection.HIGHER_IS_BETTER, absolute={"value": -section.max_accuracy_drop}
        ),
    )
    # A plain `threshold` would apply to every slice.
    overall = PerSliceMetricThreshold(slicing_specs=[tfma.SlicingSpec()], threshold=threshold)
    first = {name: tfma.MetricConfig(class_name=name) for name in BUILT_IN}
    first[BUILT_IN[0]].per_slice_thresholds.append(overall)
    slices = [Slice(), *map(parse_slice, section.slices)]
    specs = [tfma.MetricsSpec()]
    for index, metric in enumerate(section.metrics):
        config = first[metric.name] if metric.is_built_in else _metric_config(metric)
        config.per_slice_thresholds.extend(_thresholds(metric, label_names))
        if not metric.is_built_in:
            spec = _spec_of(metric, f"{_PATH}.{index}", label_names)
            if spec is None:
                first[f"{index} {metric.name}"] = config
            else:
                spec.metrics.append(config)
                specs.append(spec)
        # TFMA checks thresholds only of slices that it evaluates.
        slices += parse_held(metric.slices)
    specs[0].metrics.extend(first.values())
    return tfma.EvalConfig(
        model_specs=[
            # Empty: our Evaluator chooses the key.
            tfma.ModelSpec(
                signature_name="serving_default", label_key=LABEL, prediction_key=section.prediction_key or ""
            )
        ],
        metrics_specs=specs,
        slicing_specs=[_slicing(each, label_names) for each in dict.fromkeys(slices)],
    )


def _metric_config(metric: Metric) -> tfma.MetricConfig:
    options = dict(metric.options)
    if metric.name in _MISSPELT:
        options.setdefault("name", _MISSPELT[metric.name])
    if metric.name == _LISTED and isinstance(options.get("thresholds"), (int, float)):
        options["thresholds"] = [options["thresholds"]]
    return tfma.MetricConfig(class_name=metric.name, config=json.dumps(options, sort_keys=True) if options else "")


def _spec_of(metric: Metric, path: str, label_names: Sequence[str]) -> tfma.MetricsSpec | None:
    """Returns the spec of a metric of single classes; None if it covers all classes at once."""
    spec = tfma.MetricsSpec()
    if metric.binarize is not None:
        every = range(len(label_names))
        where = f"{path}.binarize"
        labels = every if metric.binarize == ALL else [_label(each, where, label_names) for each in metric.binarize]
        if repeated := [label for label in labels if list(labels).count(label) > 1]:
            raise DeclarationError(
                f"{where}: the label {repeated[0]} is named more than once: {', '.join(map(repr, metric.binarize))}",
                expected="each class once, by its label or by its name",
                todo="keep one of them",
            )
        spec.binarize.class_ids.values.extend(labels)
    if metric.top_k:
        spec.binarize.top_k_list.values.extend(metric.top_k)
    needs_classes = spec.ByteSize() == 0 and label_names and _compares_numbers(metric.name)
    if aggregate := metric.aggregate or ("macro" if needs_classes else ""):
        setattr(spec.aggregate, f"{aggregate}_average", True)
        if aggregate != "micro":
            # The only way to give TFMA the number of classes.
            spec.aggregate.class_weights.update(dict.fromkeys(range(len(label_names)), 1.0))
    return spec if spec.ByteSize() else None


def _compares_numbers(name: str) -> bool:
    """Returns True if a metric would compare the label's number with the scores, unless computed per class."""
    is_keras = name not in metric_types.registered_metrics()
    return name == _AS_KERAS or (is_keras and not name.startswith("Sparse"))


def _label(each: Union[int, str], path: str, label_names: Sequence[str]) -> int:
    """Returns the label of a class."""
    if isinstance(each, int) and not label_names:
        return each
    if (label := find_label(each, label_names)) is not None:
        return label
    near = nearest(str(each), label_names)
    raise DeclarationError(
        f"{path}: the data has no class `{each}`",
        expected=f"one of {', '.join(label_names)}; or, unless these are numbers, a label from 0 to "
        f"{len(label_names) - 1}",
        todo=f"did you mean `{near}`?" if near else "correct or remove it",
    )


def _slicing(each: Slice, label_names: Sequence[str]) -> tfma.SlicingSpec:
    """Makes TFMA's spec of a slice, with classes by name or label."""
    values = {name: _value(name, value, label_names) for name, value in each.values}
    return tfma.SlicingSpec(feature_keys=each.features, feature_values=values)


def _value(name: str, value: Any, label_names: Sequence[str]) -> str:
    if name != LABEL or not label_names:
        return str(value)
    # An unknown class would be an empty slice, which TFMA leaves out silently.
    return str(_label(value, "evaluator.slices", label_names))


def _thresholds(metric: Metric, label_names: Sequence[str]) -> list[PerSliceMetricThreshold]:
    if metric.threshold is None and metric.change_threshold is None:
        return []
    threshold = tfma.MetricThreshold()
    if bound := metric.threshold:
        bounds = _wrapped({"lower_bound": bound.lower, "upper_bound": bound.upper})
        threshold.value_threshold.CopyFrom(tfma.GenericValueThreshold(**bounds))
    if change := metric.change_threshold:
        direction = tfma.MetricDirection.Value(str(metric.direction).upper())
        limits = _wrapped({"absolute": change.absolute, "relative": change.relative})
        threshold.change_threshold.CopyFrom(tfma.GenericChangeThreshold(direction=direction, **limits))
    slices = [_slicing(each, label_names) for each in parse_held(metric.slices)]
    return [PerSliceMetricThreshold(slicing_specs=slices, threshold=threshold)]


def _wrapped(numbers: Mapping[str, float | None]) -> dict[str, Any]:
    return {name: {"value": number} for name, number in numbers.items() if number is not None}
