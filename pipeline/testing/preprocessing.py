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
from tensorflow_transform.tf_metadata.dataset_metadata import DatasetMetadata
from tfx_bsl.public.tfxio import TFExampleBeamRecord

from tfx_estimator.components.transform.executor import checked
from tfx_estimator.pipeline.config.beam import IN_PROCESS
from tfx_estimator.pipeline.testing.folders import new_folder, temporary_in
from tfx_estimator.pipeline.testing.rows import Row, schema_of, serialize

_OPTIONS = [f"--runner={IN_PROCESS}"]


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
    is_function = callable(preprocessing_fn)
    folder = analyze(preprocessing_fn, rows, schema, custom_config) if is_function else preprocessing_fn.uri
    graph = tft.TFTransformOutput(folder)
    spec = graph.raw_feature_spec()
    records = serialize(rows)
    # Keras would cast the inputs to the half precision of an earlier test.
    transform = graph.transform_features_layer().call
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


def analyze(
    preprocessing_fn: Callable[..., Any],
    rows: Sequence[Row],
    schema: Optional[schema_pb2.Schema] = None,
    custom_config: Optional[Mapping[str, Any]] = None,
) -> str:
    """Writes a preprocessing_fn's transform graph; returns its folder."""
    function = checked(preprocessing_fn)
    if "custom_config" in inspect.signature(preprocessing_fn).parameters:
        function = functools.partial(function, custom_config=dict(custom_config or {}))
    schema = schema or schema_of(rows)
    source = TFExampleBeamRecord("memory", schema=schema)
    folder = new_folder("analyzed")
    graph = os.path.join(folder, "graph")
    raw_metadata = os.path.join(graph, tft.TFTransformOutput.RAW_METADATA_DIR)
    with temporary_in(folder), Pipeline(argv=_OPTIONS) as pipeline, tft_beam.Context(os.path.join(folder, "scratch")):
        raw = pipeline | Create(serialize(rows)) | source.BeamSource()
        _ = (raw, source.TensorAdapterConfig()) | tft_beam.AnalyzeDataset(function) | tft_beam.WriteTransformFn(graph)
        _ = DatasetMetadata(schema) | tft_beam.WriteMetadata(raw_metadata, pipeline)
    return graph


def _rows_of(features: Mapping[str, Any]) -> dict[str, list[np.ndarray]]:
    """Returns each row of the features; of a sparse one, its values."""
    found = {}
    for name, each in features.items():
        if isinstance(each, tf.SparseTensor):
            rows = each.indices.numpy()[:, 0]
            found[name] = [each.values.numpy()[rows == row] for row in range(int(each.dense_shape[0]))]
        else:
            values = each.numpy()
            # A word alone is no array.
            found[name] = [np.asarray(row, values.dtype) for row in values]
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
