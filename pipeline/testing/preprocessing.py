"""Runs a preprocessing_fn as TFX's Transform does, and as a served model does."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union
from unittest import mock

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_metadata.proto.v0 import schema_pb2

from tfx_estimator.components.trainer.dry_run.inputs import write_inputs
from tfx_estimator.components.transform.executor import checked
from tfx_estimator.pipeline.testing import new_folder
from tfx_estimator.pipeline.testing.artifacts import schema_of
from tfx_estimator.pipeline.testing.serving import Row, serialize, values_of

_close = functools.partial(np.allclose, rtol=1e-5, atol=1e-6, equal_nan=True)


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
    given = preprocessing_fn
    graph = tft.TFTransformOutput((analyze(given, rows, schema, custom_config) if callable(given) else given).uri)
    spec, records = graph.raw_feature_spec(), serialize(rows)
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
    for name in sorted(found.keys() - labels):
        for number, one in enumerate(found[name]):
            alone = served[number][name][0]
            is_close = _close if one.dtype.kind == "f" else np.array_equal
            is_equal = one.shape == alone.shape and is_close(one, alone)
            assert is_equal, (
                f"{name} of row {number} is {one} among the others, and {alone} alone, as a served model gets it: "
                "expected the same. Take what depends on other rows from an analyzer, such as tft.mean, not from the "
                "batch"
            )
    return found


def analyze(function: Any, rows: Sequence[Row], schema: Any = None, custom_config: Any = None) -> Any:
    """Returns a preprocessing_fn's TransformGraph."""
    schema = schema or schema_of(rows)
    raw = [{each.name: values_of(row.get(each.name)) for each in schema.feature} for row in rows]
    with mock.patch("tempfile.tempdir", new_folder("temporary")):
        made = write_inputs(new_folder("analyzed"), raw, schema, checked(function), custom_config or {})
    return made["transform_graph"][0]


def _rows_of(features: Mapping[str, Any]) -> dict[str, list[np.ndarray]]:
    """Returns each row of the features; of a sparse one, its values."""
    found = {}
    for name, each in features.items():
        if isinstance(each, tf.SparseTensor):
            rows = each.indices.numpy()[:, 0]
            found[name] = [each.values.numpy()[rows == row] for row in range(int(each.dense_shape[0]))]
        else:
            # A word alone is no array.
            found[name] = [np.asarray(row, each.dtype.as_numpy_dtype) for row in each.numpy()]
    return found
