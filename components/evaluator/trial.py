"""Tries TFMA's metrics and model calls before training, on made-up examples and predictions, without Beam."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.metrics import metric_specs, metric_types
from tensorflow_model_analysis.utils import model_util

from tfx_estimator.components.evaluator.extractors import find_averaged
from tfx_estimator.data.features import IMAGE, LABEL
from tfx_estimator.pipeline.base.errors import DeclarationError, UserCodeError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.package_names import OF_OTHER_LABELS, nearest_metric
from tfx_estimator.pipeline.config.task import CLASSES, REGRESSION, Task

_EACH, _LEAST = 3, 8
_MOST_CLASSES = 1000
# Metrics of all classes at once, which TFMA would compute wrongly, without an error, with binarize or aggregate.
_OF_ALL = re.compile("Sparse|.*ExampleCount|.*Discrimination|SquaredPearson")


def try_metrics(config: tfma.EvalConfig, task: Task) -> None:
    """Computes each metric on made-up predictions; refuses errors, wrong results and duplicate names."""
    seen: set[tuple[str, Any]] = set()
    for spec in config.metrics_specs:
        for metric in spec.metrics:
            alone = tfma.MetricsSpec()
            alone.CopyFrom(spec)
            del alone.metrics[:], alone.model_names[:]
            alone.metrics.add().CopyFrom(metric)
            one = tfma.EvalConfig(model_specs=[tfma.ModelSpec(label_key=LABEL)], metrics_specs=[alone])
            try:
                _refuse_wrong(metric, alone, task)
                _try(one, task, seen)
            except Exception as error:  # TFMA and Keras raise many types
                raise _refusal(metric, f"cannot be measured: {one_line(str(error))[:300]}") from error


def _refuse_wrong(metric: tfma.MetricConfig, spec: tfma.MetricsSpec, task: Task) -> None:
    thresholds = json.loads(metric.config or "{}").get("thresholds")
    if task.kind != REGRESSION and OF_OTHER_LABELS.match(metric.class_name):
        raise ValueError("it reads one-hot labels, or labels as scores: those of a classifier here are numbers")
    if _OF_ALL.match(metric.class_name) and (spec.HasField("binarize") or spec.HasField("aggregate")):
        raise ValueError("it covers all classes at once: remove binarize, top_k and aggregate")
    if metric.class_name.startswith("AUC") and isinstance(thresholds, list) and thresholds != sorted({*thresholds}):
        raise ValueError("its thresholds are not in ascending order, so its area would be wrong")


def _try(config: tfma.EvalConfig, task: Task, seen: set[tuple[str, Any]]) -> None:
    """Computes one metric; adds its names to `seen`, those of the previous metrics."""
    computations = list(metric_specs.to_computations(list(config.metrics_specs), config))
    keys = [key for each in computations for key in each.keys if not key.name.startswith("_")]
    # Neither the results nor TFMA distinguish an aggregate from the overall metric.
    names = {(key.name, key.sub_key) for key in keys}
    if repeated := sorted(name for name, _ in names & seen):
        raise ValueError(f"another metric is named {repeated[0]}, too: add options: {{name: another_name}} to one")
    seen |= names
    # There are no made-up values of the preprocessing_fn's features.
    if {*find_averaged(config)} - {LABEL}:
        return
    measured = _measure(computations, task)
    for key in metric_specs.metric_thresholds_from_metrics_specs(config.metrics_specs, eval_config=config):
        value = measured.get(key._replace(is_diff=False) if key.is_diff else key)
        if not isinstance(value, (int, float, np.number)):
            raise ValueError(
                "it has a threshold, but TFMA reports no single number under its name: use binarize or top_k instead "
                "of options, and macro instead of weighted_macro"
            )


def try_signature(saved_model: str, config: tfma.EvalConfig, serialized: Sequence[bytes]) -> None:
    """Calls a model's signature as TFMA does: with the features that its inputs are named after, or the tf.Examples."""
    (spec,) = config.model_specs
    parsed = [tf.train.Example.FromString(each).features.feature for each in serialized]
    extracts = {
        tfma.INPUT_KEY: np.array(serialized, object),
        tfma.FEATURES_KEY: {name: _column([each[name] for each in parsed]) for name in parsed[0]},
    }
    predict = model_util.ModelSignaturesDoFn(
        [spec],
        {"": tfma.default_eval_shared_model(saved_model, eval_config=config)},
        output_keypath=[tfma.PREDICTIONS_KEY],
        signature_names={"": [spec.signature_name]},
        prefer_dict_outputs=False,
    )
    predict.setup()
    try:
        predict.process(extracts)
    except Exception as error:  # the model's code may raise any type
        inputs = tf.saved_model.load(saved_model).signatures[spec.signature_name].structured_input_signature[1]
        takes = ", ".join(f"{name}: {each.dtype.name} {each.shape}" for name, each in inputs.items())
        raise UserCodeError(
            f"the Evaluator could not call the served signature `{spec.signature_name}`, which takes {takes}: "
            f"{one_line(str(error.__cause__ or error))[:300]}",
            expected=f"a signature that takes serialized tf.Examples, string [batch], or their feature `{IMAGE}`",
            todo="parse them in the receiver of serving_default with tf.io.parse_example, and process the features "
            "there as in training; add another signature for other inputs with receiver_tensors_alternatives",
        ) from error


def _column(features: Sequence[tf.train.Feature]) -> np.ndarray:
    values = [_values(each) for each in features]
    # Of a table, a value may be missing.
    return np.array(values, None if len({*map(len, values)}) == 1 else object)


def _values(feature: tf.train.Feature) -> np.ndarray:
    found = getattr(feature, feature.WhichOneof("kind") or "bytes_list").value
    return np.array(found, object if feature.HasField("bytes_list") else None)


def _refusal(metric: tfma.MetricConfig, what: str) -> DeclarationError:
    options = f" with {metric.config}" if metric.config else ""
    near = nearest_metric(metric.class_name)
    return DeclarationError(
        f"evaluator.metrics: {metric.class_name}{options} {what}",
        expected="a metric, and options, that TFMA can compute from scores and a label for each example",
        todo=f"did you mean `{near}`?"
        if near
        else "correct its options, binarize, top_k or aggregate, or remove it; see https://www.tensorflow.org/tfx/model_analysis/metrics",
    )


def _measure(computations: Sequence[Any], task: Task) -> dict[Any, Any]:
    """Computes the metrics of one slice by MetricKey, as TFMA's pipeline does."""
    found: dict[Any, Any] = {}
    derived, seen = [], set()
    for computation in computations:
        if isinstance(computation, metric_types.DerivedMetricComputation):
            derived.append(computation)
        elif isinstance(computation, metric_types.MetricComputation) and computation not in seen:
            seen.add(computation)
            combiner = computation.combiner
            combiner.setup()
            gathered = combiner.create_accumulator()
            for each in _examples(task):
                gathered = combiner.add_input(gathered, each)
            found.update(combiner.extract_output(combiner.compact(gathered)))
    for computation in derived:
        found.update(computation.result(found))
    return found


def _examples(task: Task) -> Iterator[Any]:
    random = np.random.default_rng(0)
    # A regression's labels are numbers as well; the names of classes may be unknown.
    width = max(len(task.names), 2)
    classes = min(width, _MOST_CLASSES)
    for number in range(max(_LEAST, _EACH * min(classes, 20))):
        label = number % classes
        scores = random.dirichlet(np.ones(width)).astype(np.float32)
        scores = scores if task.kind == CLASSES else scores[-1:]
        yield metric_types.StandardMetricInputs(
            {
                "labels": np.array([label]),
                "predictions": scores,
                "example_weights": np.array([1.0]),
                "features": {LABEL: np.array([label])},
            }
        )
