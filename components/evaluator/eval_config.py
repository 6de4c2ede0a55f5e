"""TFMA's configuration for a declared evaluator."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Union

import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.metrics import metric_types
from tensorflow_model_analysis.proto.config_pb2 import ExampleWeightOptions, PerSliceMetricThreshold

from tfx_estimator.components.evaluator import skill
from tfx_estimator.components.evaluator.extractors import TRANSFORM_FEATURES
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.evaluator import (
    ACCURACIES,
    ALL,
    COUNT,
    LEAST_SKILL,
    LOSSES,
    SKILL,
    EvaluatorSection,
    Metric,
    Slice,
    built_in,
    parse_held,
    parse_slice,
)
from tfx_estimator.pipeline.config.problems import nearest
from tfx_estimator.pipeline.config.task import CLASSES, Task
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
# How much of the latest blessed model's loss the model's may be higher by.
_RISE = 0.01


def eval_config(section: EvaluatorSection, task: Task) -> tfma.EvalConfig:
    """Makes the configuration: metrics, slices and thresholds.

    See https://www.tensorflow.org/tfx/model_analysis/metrics.

    Returns:
        The task's own metrics and the declared ones, overall and per slice; a threshold applies overall, unless its
        metric names slices.
    """
    names = built_in(task)
    first = {name: _metric_config(Metric(name=name), task) for name in names}
    for name, threshold in _default_thresholds(section, task):
        # A plain `threshold` would apply to every slice.
        overall = PerSliceMetricThreshold(slicing_specs=[tfma.SlicingSpec()], threshold=threshold)
        first[name].per_slice_thresholds.append(overall)
    slices = [Slice(), *map(parse_slice, section.slices_of(task))]
    specs = [tfma.MetricsSpec()]
    for index, metric in enumerate(section.metrics):
        computed = metric.is_one_of(names)
        config = first[metric.name] if computed else _metric_config(metric, task)
        config.per_slice_thresholds.extend(_thresholds(metric, task))
        if not computed:
            spec = _spec_of(metric, f"{_PATH}.{index}", task)
            if spec is None:
                first[f"{index} {metric.name}"] = config
            else:
                spec.metrics.append(config)
                specs.append(spec)
        # TFMA checks thresholds only of slices that it evaluates.
        slices += parse_held(metric.slices)
    if task.weight:
        # A number of examples, not the sum of their weights.
        counted = tfma.MetricsSpec(example_weights=ExampleWeightOptions(unweighted=True))
        counted.metrics.append(first.pop(COUNT))
        specs.append(counted)
    specs[0].metrics.extend(first.values())
    return tfma.EvalConfig(
        model_specs=[
            tfma.ModelSpec(
                signature_name="serving_default",
                label_key=task.label,
                example_weight_key=task.weight,
                # Empty: our Evaluator chooses the key.
                prediction_key=section.prediction_key or "",
                preprocessing_function_names=[TRANSFORM_FEATURES] if task.preprocessed else [],
            )
        ],
        metrics_specs=specs,
        slicing_specs=[_slicing(each, task) for each in dict.fromkeys(slices)],
    )


def _default_thresholds(section: EvaluatorSection, task: Task) -> Iterator[tuple[str, tfma.MetricThreshold]]:
    """Yields (metric, threshold): the accuracy's; but for images, those of the skill and the loss, too.

    A declared threshold of the skill or the loss takes the place of the default one.
    """
    drop = section.max_accuracy_drop
    change = None
    # The default is of images.
    if drop is not None and (task.is_of_images or drop != EvaluatorSection().max_accuracy_drop):
        change = _change("HIGHER_IS_BETTER", absolute={"value": -drop})
    if task.is_of_images or (task.kind in ACCURACIES and (section.min_accuracy or change)):
        value = tfma.GenericValueThreshold(lower_bound={"value": section.min_accuracy})
        yield ACCURACIES[task.kind], tfma.MetricThreshold(value_threshold=value, change_threshold=change)
    if task.is_of_images:
        return
    declared = {each.name for each in section.metrics if each.threshold or each.change_threshold}
    if SKILL not in declared:
        least = tfma.GenericValueThreshold(lower_bound={"value": LEAST_SKILL})
        yield SKILL, tfma.MetricThreshold(value_threshold=least)
    if (loss := LOSSES[task.kind]) not in declared and drop is not None:
        rise = _change("LOWER_IS_BETTER", relative={"value": _RISE})
        yield loss, tfma.MetricThreshold(change_threshold=rise)


def _change(direction: str, **limits: Any) -> tfma.GenericChangeThreshold:
    return tfma.GenericChangeThreshold(direction=tfma.MetricDirection.Value(direction), **limits)


def _metric_config(metric: Metric, task: Task) -> tfma.MetricConfig:
    options, module = dict(metric.options), None
    if metric.name == SKILL:
        options["task"], module = task.kind, skill.__name__
    if metric.name in _MISSPELT:
        options.setdefault("name", _MISSPELT[metric.name])
    if metric.name == _LISTED and isinstance(options.get("thresholds"), (int, float)):
        options["thresholds"] = [options["thresholds"]]
    config = json.dumps(options, sort_keys=True) if options else ""
    return tfma.MetricConfig(class_name=metric.name, module=module, config=config)


def _spec_of(metric: Metric, path: str, task: Task) -> tfma.MetricsSpec | None:
    """Returns the spec of a metric of single classes; None if it covers all classes at once."""
    spec, label_names = tfma.MetricsSpec(), task.names
    if metric.binarize is not None:
        every = range(len(label_names))
        where = f"{path}.binarize"
        labels = every if metric.binarize == ALL else [_label(each, where, task) for each in metric.binarize]
        if repeated := [label for label in labels if list(labels).count(label) > 1]:
            raise DeclarationError(
                f"{where}: the label {repeated[0]} is named more than once: {', '.join(map(repr, metric.binarize))}",
                expected="each class once, by its label or by its name",
                todo="keep one of them",
            )
        spec.binarize.class_ids.values.extend(labels)
    if metric.top_k:
        spec.binarize.top_k_list.values.extend(metric.top_k)
    by_class = task.kind == CLASSES and label_names and _compares_numbers(metric.name)
    if aggregate := metric.aggregate or ("macro" if by_class and spec.ByteSize() == 0 else ""):
        setattr(spec.aggregate, f"{aggregate}_average", True)
        if aggregate != "micro":
            # The only way to give TFMA the number of classes.
            spec.aggregate.class_weights.update(dict.fromkeys(range(len(label_names)), 1.0))
    return spec if spec.ByteSize() else None


def _compares_numbers(name: str) -> bool:
    """Returns True if a metric would compare the label's number with the scores, unless computed per class."""
    is_keras = name not in metric_types.registered_metrics()
    return name == _AS_KERAS or (is_keras and not name.startswith("Sparse"))


def _label(each: Union[int, str], path: str, task: Task) -> int:
    """Returns the label of a class."""
    label_names = task.names
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


def _slicing(each: Slice, task: Task) -> tfma.SlicingSpec:
    """Makes TFMA's spec of a slice, with classes by name or label."""
    values = {name: _value(name, value, task) for name, value in each.values}
    return tfma.SlicingSpec(feature_keys=each.features, feature_values=values)


def _value(name: str, value: Any, task: Task) -> str:
    if name != task.label or not task.names:
        return str(value)
    # An unknown class would be an empty slice, which TFMA leaves out silently.
    return str(_label(value, "evaluator.slices", task))


def _thresholds(metric: Metric, task: Task) -> list[PerSliceMetricThreshold]:
    if metric.threshold is None and metric.change_threshold is None:
        return []
    threshold = tfma.MetricThreshold()
    if bound := metric.threshold:
        bounds = _wrapped({"lower_bound": bound.lower, "upper_bound": bound.upper})
        threshold.value_threshold.CopyFrom(tfma.GenericValueThreshold(**bounds))
    if change := metric.change_threshold:
        limits = _wrapped({"absolute": change.absolute, "relative": change.relative})
        threshold.change_threshold.CopyFrom(_change(str(metric.direction).upper(), **limits))
    slices = [_slicing(each, task) for each in parse_held(metric.slices)]
    return [PerSliceMetricThreshold(slicing_specs=slices, threshold=threshold)]


def _wrapped(numbers: Mapping[str, float | None]) -> dict[str, Any]:
    return {name: {"value": number} for name, number in numbers.items() if number is not None}
