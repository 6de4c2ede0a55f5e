"""Runs a preprocessing_fn as TFX's Transform does, and as a served model does."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional, Union

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam
from apache_beam import Create, Pipeline
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils

from tfx_estimator.components.transform.executor import checked
from tfx_estimator.pipeline.testing.folders import new_folder, temporary_in
from tfx_estimator.pipeline.testing.rows import Row, schema_of, serialize

_OPTIONS = ["--direct_num_workers=1", "--direct_running_mode=in_memory"]


def preprocess(
    preprocessing_fn: Any,
    rows: Sequence[Row],
    *,
    schema: Optional[schema_pb2.Schema] = None,
    label: Union[str, Sequence[str]] = "",
    custom_config: Optional[Mapping[str, Any]] = None,
) -> dict[str, list[np.ndarray]]:
    """Analyzes and transforms rows as Transform does, and transforms each one alone as a served model does.

    Args:
        preprocessing_fn: The function; or its TransformGraph, if several tests share one.
        rows: Raw features by name: a number, text or bytes; several in a list; None for a missing one.
        schema: Of the rows; by default as SchemaGen infers it, so that a feature with one value in each row has the
            shape [batch, 1], and one that is missing in some is sparse.
        label: Names of the raw feature that a request has not, and of what is made of it.
        custom_config: As for Transform.

    Returns:
        The transformed features: for each row an array.

    Raises:
        AssertionError: A served row differs from the transformed one.
        UserCodeError: The function returns no dict of tensors.
    """
    __tracebackhide__ = True
    if callable(preprocessing_fn):
        folder = analyze(preprocessing_fn, rows, schema, custom_config)
    else:
        assert (schema, custom_config) == (None, None), "a TransformGraph has a schema and a custom_config of its own"
        folder = preprocessing_fn.uri
    graph = tft.TFTransformOutput(folder)
    spec = graph.raw_feature_spec()
    records = serialize(rows)
    transform = _in_float32(graph.transform_raw_features)
    found = _rows_of(transform(tf.io.parse_example(records, spec)))
    labels = {label} if isinstance(label, str) else set(label)
    asked = {name: each for name, each in spec.items() if name not in labels}
    served = [_rows_of(transform(tf.io.parse_example([each], asked))) for each in records]
    lost = sorted(found.keys() - served[0].keys() - labels)
    assert not lost, (
        f"{', '.join(lost)} cannot be served: made of {', '.join(labels)}, which a request has not; what is itself a "
        "label is named in `label`, too"
    )
    for name, values in found.items():
        for number, (one, alone) in enumerate(zip(values, served)):
            if name in alone and name not in labels:
                _compare(name, number, one, alone[name][0])
    return found


def _in_float32(transform: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a call of a Keras layer, which would cast its inputs to the half precision of an earlier test."""
    mixed_precision = tf.keras.mixed_precision

    @functools.wraps(transform)
    def call(features: Any) -> Any:
        before = mixed_precision.global_policy()
        mixed_precision.set_global_policy("float32")
        try:
            return transform(features)
        finally:
            mixed_precision.set_global_policy(before)

    return call


def analyze(
    preprocessing_fn: Callable[..., Any],
    rows: Sequence[Row],
    schema: Optional[schema_pb2.Schema] = None,
    custom_config: Optional[Mapping[str, Any]] = None,
) -> str:
    """Writes a preprocessing_fn's transform graph; returns its folder."""
    records = serialize(rows)
    function = checked(preprocessing_fn)
    if "custom_config" in inspect.signature(preprocessing_fn).parameters:
        function = functools.partial(function, custom_config=dict(custom_config or {}))
    spec = schema_utils.schema_as_feature_spec(schema or schema_of(rows)).feature_spec
    metadata = dataset_metadata.DatasetMetadata.from_feature_spec(spec)
    raw = [{name: _plain(each) for name, each in _instance(record, spec).items()} for record in records]
    folder = new_folder("analyzed")
    graph = os.path.join(folder, "graph")
    scratch = os.path.join(folder, "scratch")
    with temporary_in(folder), Pipeline(argv=_OPTIONS) as pipeline, tft_beam.Context(temp_dir=scratch):
        analyzed = (pipeline | Create(raw), metadata) | tft_beam.AnalyzeDataset(function)
        _ = analyzed | tft_beam.WriteTransformFn(graph)
        _ = metadata | tft_beam.WriteMetadata(os.path.join(graph, tft.TFTransformOutput.RAW_METADATA_DIR), pipeline)
    return graph


def _instance(record: bytes, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an example as TensorFlow Transform takes it."""
    parsed = tf.io.parse_single_example(record, dict(spec))
    return {
        name: each.values.numpy() if isinstance(each, tf.SparseTensor) else each.numpy()
        for name, each in parsed.items()
    }


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def _rows_of(features: Mapping[str, Any]) -> dict[str, list[np.ndarray]]:
    """Returns each row of the features; of a sparse one, its values."""
    found = {}
    for name, each in features.items():
        if isinstance(each, tf.SparseTensor):
            rows = each.indices.numpy()[:, 0]
            found[name] = [each.values.numpy()[rows == row] for row in range(int(each.dense_shape[0]))]
        else:
            found[name] = [row.numpy() for row in each]
    return found


def _compare(name: str, number: int, one: np.ndarray, alone: np.ndarray) -> None:
    __tracebackhide__ = True
    is_float = np.issubdtype(one.dtype, np.floating)
    same = one.shape == alone.shape and (
        np.allclose(one, alone, rtol=1e-5, atol=1e-6, equal_nan=True) if is_float else np.array_equal(one, alone)
    )
    assert same, (
        f"{name} of row {number} is {one} among the others, and {alone} alone, as a served model gets it: expected the "
        "same. Take what depends on other rows from an analyzer, such as tft.mean, not from the batch"
    )
