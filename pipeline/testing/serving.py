"""Calls what a model serves, with rows as tf.Examples."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.pipeline.testing import new_folder

# A feature's value: one, several in a list, or None if it is missing.
Row = Mapping[str, Any]
# The list of a tf.Example, and the type in a schema, by the kind of NumPy's array.
_KINDS = {"S": ("bytes_list", "BYTES"), "f": ("float_list", "FLOAT")}
_INT = ("int64_list", "INT")


def export_and_serve(
    model: Any,
    rows: Sequence[Row],
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
    folder: Any = new_folder("export")
    if isinstance(model, (str, os.PathLike)):
        folder = model
    elif serving_input_receiver_fn is not None:
        folder = model.export_saved_model(folder, serving_input_receiver_fn)
    else:
        tf.saved_model.save(model, folder)
    # Its signatures do not keep its variables alive.
    loaded = tf.saved_model.load(tf.compat.as_str_any(folder))
    assert signature in loaded.signatures, f"{folder} has no signature {signature}, only {sorted(loaded.signatures)}"
    function = loaded.signatures[signature]
    takes = function.structured_input_signature[1]
    if [each.dtype for each in takes.values()] == [tf.string] and not takes.keys() & rows[0].keys():
        given = dict.fromkeys(takes, tf.constant(serialize(rows)))
    else:
        given = {name: tf.constant([row[name] for row in rows], spec.dtype) for name, spec in takes.items()}
        # Numbers as lists of one, where it takes these.
        known = {name: spec.shape[1:] for name, spec in takes.items() if spec.shape[1:].is_fully_defined()}
        given |= {name: tf.reshape(given[name], [len(rows), *shape]) for name, shape in known.items()}
    return {name: each.numpy() for name, each in function(**given).items()}


def values_of(value: Any) -> list[Any]:
    """Returns the values of a feature: bytes, ints or floats."""
    found = np.asarray(value, object).ravel().tolist()
    return [each.encode() if isinstance(each, str) else each for each in found if each is not None]


def kinds_of(rows: Sequence[Row]) -> dict[str, tuple[str, str]]:
    """Returns the kind of each feature, see _KINDS."""
    names = sorted({name for row in rows for name in row})
    found = {name: np.array([each for row in rows for each in values_of(row.get(name))]) for name in names}
    return {name: _KINDS.get(each.dtype.kind, _INT) for name, each in found.items()}


def serialize(rows: Sequence[Row]) -> list[bytes]:
    """Returns rows as serialized tf.Examples."""
    kinds, found = kinds_of(rows), []
    for row in rows:
        example = tf.train.Example()
        for name, (kind, _) in kinds.items():
            if values := values_of(row.get(name)):
                getattr(example.features.feature[name], kind).value.extend(values)
        found.append(example.SerializeToString())
    return found
