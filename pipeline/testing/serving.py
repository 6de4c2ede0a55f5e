"""Calls what a model serves."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.pipeline.testing.folders import new_folder
from tfx_estimator.pipeline.testing.rows import serialize


def export_and_serve(
    model: Any,
    rows: Sequence[Mapping[str, Any]],
    serving_input_receiver_fn: Optional[Callable[[], Any]] = None,
    *,
    signature: str = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY,
) -> dict[str, np.ndarray]:
    """Exports a trained model, loads the export and calls a signature with raw rows.

    Args:
        model: An Estimator that was trained; a Keras model or tf.Module; or the folder of a SavedModel.
        rows: Raw features by name. A signature of one string tensor gets them as serialized tf.Examples; any other,
            its own inputs by name.
        serving_input_receiver_fn: That of the Estimator's export.
        signature: Name of the signature.

    Returns:
        The outputs by name, arrays [rows, …].

    Raises:
        AssertionError: The export has no such signature.
    """
    __tracebackhide__ = True
    if isinstance(model, (str, os.PathLike)):
        folder = os.fspath(model)
    elif serving_input_receiver_fn is not None:
        folder = model.export_saved_model(new_folder("export"), serving_input_receiver_fn).decode()
    else:
        folder = new_folder("export")
        tf.saved_model.save(model, folder)
    loaded = tf.saved_model.load(folder)
    assert signature in loaded.signatures, f"{folder} has no signature {signature}, only {sorted(loaded.signatures)}"
    function = loaded.signatures[signature]
    takes = function.structured_input_signature[1]
    if len(takes) == 1 and next(iter(takes.values())).dtype == tf.string and not takes.keys() & rows[0].keys():
        given = dict.fromkeys(takes, tf.constant(serialize(rows)))
    else:
        given = {
            name: _shaped(tf.constant([row[name] for row in rows], spec.dtype), spec) for name, spec in takes.items()
        }
    return {name: each.numpy() for name, each in function(**given).items()}


def _shaped(values: tf.Tensor, spec: tf.TensorSpec) -> tf.Tensor:
    """Returns numbers as lists of one where the signature takes these."""
    return tf.reshape(values, [-1, *spec.shape[1:]]) if spec.shape[1:].is_fully_defined() else values
