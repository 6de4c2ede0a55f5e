"""Batches of examples for a signature of an export."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.bridge.examples import batches_of
from tfx_estimator.model_fn.bridge.graph.exported import Exported
from tfx_estimator.pipeline.base.errors import DataError
from tfx_estimator.pipeline.base.text import first_line

_SIZE = 256


def read(exported: Exported, files: Sequence[str]) -> Iterator[dict[str, np.ndarray]]:
    """Yields batches of examples: serialized, or parsed by the names, types and shapes of the signature's inputs.

    Raises:
        DataError: They cannot be read, or lack a feature.
    """
    fixed = next((shape[0] for _, shape in exported.inputs.values() if shape and shape[0]), None)
    try:
        for batch in batches_of(files, fixed or _SIZE, bool(fixed)):
            yield {next(iter(exported.inputs)): batch} if exported.serialized else _parsed(exported, batch)
    except tf.errors.OpError as error:
        raise not_taken(exported, error) from error


def not_taken(exported: Exported, error: tf.errors.OpError) -> DataError:
    """Returns the error for examples that the export does not take."""
    kind = "that the export can parse" if exported.serialized else f"with {', '.join(sorted(exported.inputs))}"
    return DataError(
        f"the export does not take the evaluation examples: {first_line(error)}",
        expected=f"TFRecord files of tf.Examples {kind}",
        todo="name them by --examples",
    )


def _parsed(exported: Exported, batch: np.ndarray) -> dict[str, np.ndarray]:
    spec = {name: _feature(dtype, shape) for name, (dtype, shape) in exported.inputs.items()}
    found = tf.io.parse_example(batch, spec)
    return {name: tf.cast(found[name], dtype).numpy() for name, (dtype, _) in exported.inputs.items()}


def _feature(dtype: tf.DType, shape: Optional[Sequence[Optional[int]]]) -> Any:
    """Returns the parsing feature of an input: string, int64 or float32; of variable length, padded."""
    stored = dtype if dtype == tf.string else tf.float32 if dtype.is_floating else tf.int64
    of_one = [*(shape or ())[1:]]
    if of_one and of_one[0] is None:
        return tf.io.FixedLenSequenceFeature(of_one[1:], stored, allow_missing=True)
    return tf.io.FixedLenFeature(of_one, stored)
