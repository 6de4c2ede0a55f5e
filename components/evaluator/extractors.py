"""Additional TFMA extractors: features of a preprocessing_fn to slice by, and probabilities from logits."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow as tf
import tensorflow_model_analysis as tfma
import tensorflow_transform as tft
from tensorflow_model_analysis import constants
from tensorflow_model_analysis.api import types
from tensorflow_model_analysis.utils import util

from tfx_estimator.components.evaluator.completion import Extras, current
from tfx_estimator.components.served_outputs import Scores
from tfx_estimator.data.features import IMAGE
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.evaluator import FEATURES, MEAN
from tfx_estimator.pipeline.config.problems import nearest

FUNCTION = f"{__name__}.custom_extractors"
# TFX's name of a model's attribute that applies the transform graph. A model spec that names it has its label, and its
# weight, of what the graph returns, as far as it returns them.
TRANSFORM_FEATURES = "transform_features"


def custom_extractors(eval_shared_model: Any, eval_config: tfma.EvalConfig, tensor_adapter_config: Any) -> list[Any]:
    """Returns TFMA's default extractors with ours inserted; TFX's Evaluator calls it.

    See https://www.tensorflow.org/tfx/model_analysis/architecture.
    """
    extras = current()
    extractors = tfma.default_extractors(
        eval_shared_model=eval_shared_model, eval_config=eval_config, tensor_adapter_config=tensor_adapter_config
    )

    def place(before: str) -> int:
        return next(index for index, extractor in enumerate(extractors) if before in extractor.stage_name)

    if extras.converted:
        extractors.insert(place("Unbatch"), _extractor("ExtractProbabilities", _Probabilities(extras)))
    if extras.features:
        # The label, and the weight, may be among them.
        extractors.insert(place("ExtractLabels"), _extractor("ExtractSliceFeatures", _Features(extras)))
    return extractors


def _extractor(name: str, function: beam.DoFn) -> Any:
    return tfma.extractors.Extractor(stage_name=name, ptransform=beam.ParDo(function))


@beam.typehints.with_input_types(types.Extracts)
@beam.typehints.with_output_types(types.Extracts)
class _Features(beam.DoFn):
    """Adds features of the transform graph to the examples' features."""

    def __init__(self, extras: Extras) -> None:
        self._extras = extras
        self._read: Any = None

    def setup(self) -> None:
        """Loads the graph."""
        output = tft.TFTransformOutput(self._extras.transform_graph)
        spec, layer = output.raw_feature_spec(), output.transform_features_layer()
        wanted = self._extras.features

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def read(examples: tf.Tensor) -> dict[str, tf.Tensor]:
            returned = layer(tf.io.parse_example(examples, spec))
            return {name: _as_read(returned[name]) for name in wanted}

        self._read = read

    def process(self, extracts: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Reads one batch."""
        found = self._read(tf.constant(np.asarray(extracts[constants.INPUT_KEY]).reshape(-1), tf.string))
        features = {name: _as_extracted(value) for name, value in found.items()}
        yield {**extracts, constants.FEATURES_KEY: {**extracts[constants.FEATURES_KEY], **features}}


@beam.typehints.with_input_types(types.Extracts)
@beam.typehints.with_output_types(types.Extracts)
class _Probabilities(beam.DoFn):
    """Converts scores to probabilities."""

    def __init__(self, extras: Extras) -> None:
        self._extras = extras

    def process(self, extracts: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Converts one batch."""
        predictions = extracts[constants.PREDICTIONS_KEY]
        for model, scores in self._extras.converted.items():
            outputs = predictions[model] if model else predictions
            # A signature with a single output has no dict.
            changed = (
                {**outputs, scores.key: self._convert(outputs[scores.key], scores)}
                if isinstance(outputs, Mapping)
                else self._convert(outputs, scores)
            )
            predictions = {**predictions, model: changed} if model else changed
        yield {**extracts, constants.PREDICTIONS_KEY: predictions}

    def _convert(self, found: Any, scores: Scores) -> np.ndarray:
        values = np.asarray(found, np.float64)
        values = values.reshape(len(values), -1) if self._extras.second else values
        if scores.from_logits and (scores.of_two or values.shape[-1] == 1):
            values = 1 / (1 + np.exp(-values))
        elif scores.from_logits:
            raised = np.exp(values - values.max(-1, keepdims=True))
            values = raised / raised.sum(-1, keepdims=True)
        if not self._extras.second:
            return values.astype(np.float32)
        second = values[:, -1:]
        if beyond := second[(second < 0) | (second > 1)].tolist():
            raise UserCodeError(
                f"the served output `{scores.key}` holds {beyond[0]:g}, which is no probability",
                expected="probabilities, or logits as a dense layer computes them",
                todo="serve tf.sigmoid(logits)",
            )
        return second.astype(np.float32)


def _as_read(value: Any) -> Any:
    if isinstance(value, tf.RaggedTensor):
        value = value.to_sparse()
    return tf.sparse.reorder(value) if isinstance(value, tf.SparseTensor) else tf.convert_to_tensor(value)


def _as_extracted(value: Any) -> Any:
    """Converts a value as TFMA's unbatching expects it: values of variable length without padding."""
    if isinstance(value, tf.SparseTensor):
        return util.to_varlen_sparse_tensor_value(value)
    return np.asarray(value).reshape(len(value), -1)


def find_features(config: tfma.EvalConfig, raw: Sequence[str]) -> tuple[str, ...]:
    """Returns the features of slices and means that the examples lack."""
    return tuple(sorted({*find_sliced(config), *find_averaged(config)} - {*raw}))


def find_sliced(config: tfma.EvalConfig) -> tuple[str, ...]:
    """Returns the features of slices."""
    names = [name for spec in config.slicing_specs for name in (*spec.feature_keys, *spec.feature_values)]
    return tuple(dict.fromkeys(names))


def find_averaged(config: tfma.EvalConfig) -> tuple[str, ...]:
    """Returns the features whose means are metrics."""
    means = [each for spec in config.metrics_specs for each in spec.metrics if each.class_name == MEAN and each.config]
    paths = [path for each in means for key, path in json.loads(each.config).items() if key.endswith("_key_path")]
    return tuple(dict.fromkeys(path[1] for path in paths if path and len(path) == 2 and path[0] == FEATURES))


def check_features(config: tfma.EvalConfig, raw: Sequence[str], returned: Mapping[str, Any]) -> tuple[str, ...]:
    """Checks that the features of slices and means exist, with a suitable shape and type; and that the label exists.

    Returns:
        Those that the Evaluator takes from the transform graph: see `find_features`, and the label and the weight.
    """
    wanted, averaged, sliced = find_features(config, raw), find_averaged(config), find_sliced(config)
    known = [name for name in dict.fromkeys((*returned, *raw)) if name != IMAGE]
    for name in wanted:
        if name not in returned:
            near, section = nearest(name, known), "metrics" if name in averaged else "slices"
            raise UserCodeError(
                f"evaluator.{section}: there is no feature `{name}`: the examples and the preprocessing_fn have "
                f"{', '.join(known)}",
                expected=f"some of {', '.join(known)}",
                todo=f"did you mean `{near}`?" if near else f"return `{name}` from the preprocessing_fn, or remove it",
            )
        _check_shape(name, returned[name], name in averaged)
        kind = returned[name].dtype
        # Floats would make a slice of about every example, and TFMA computes no mean of strings.
        if (name in sliced and kind.is_floating) or (name in averaged and kind == tf.string):
            section, expected = ("metrics", "a number") if kind == tf.string else ("slices", "a string or an integer")
            raise UserCodeError(
                f"evaluator.{section}: the feature `{name}` is {kind.name}",
                expected=f"a feature that is {expected}",
                todo="return one under another name from the preprocessing_fn, for example by tft.bucketize; or remove "
                f"`{name}`",
            )
    (spec,) = config.model_specs
    if TRANSFORM_FEATURES not in spec.preprocessing_function_names:
        return wanted
    if (label := spec.label_key) not in (*returned, *raw):
        near = nearest(label, known)
        raise UserCodeError(
            f"data.label: there is no feature `{label}`: the examples and the preprocessing_fn have {', '.join(known)}",
            expected=f"one of {', '.join(known)}",
            todo=f"did you mean `{near}`?" if near else "return it from the preprocessing_fn",
        )
    made = (name for name in (label, spec.example_weight_key) if name in returned)
    return tuple(dict.fromkeys((*wanted, *made)))


def _check_shape(name: str, spec: Any, averaged: bool) -> None:
    """Refuses a vector: each example would be in as many slices as it has values."""
    listed = isinstance(spec, tf.io.VarLenFeature) or (isinstance(spec, tf.io.RaggedFeature) and not spec.partitions)
    if isinstance(spec, tf.io.FixedLenFeature):
        shape = list(spec.shape)
        if math.prod(shape) == 1:
            return
        found = f"{math.prod(shape):,} values per example, of shape {shape}"
    elif listed and not averaged:
        return
    else:
        found = "any number of values per example" if listed else "tensors of any size"
    section = f"metrics: {MEAN} of" if averaged else "slices:"
    others = "" if averaged else ", or a list of any number of values: a ragged or sparse tensor [batch, n]"
    raise UserCodeError(
        f"evaluator.{section} the feature `{name}`, which has {found}",
        expected=f"one value per example, [batch] or [batch, 1]{others}",
        todo=f"return a single value{'' if averaged else ', or such a list,'} from the preprocessing_fn, under another "
        f"name, or remove `{name}`",
    )
