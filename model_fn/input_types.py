"""Whether the inputs of a model keep what they are given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfx_estimator.pipeline.base.errors import UserCodeError


def refuse_rounding(model: tf.keras.Model, given: Any) -> None:
    """Refuses a model whose inputs are of integers where the features are not: Keras casts these without a word.

    Of standardised pixels that leaves next to nothing. Integers for an input of floats are cast as well, and stay.

    Args:
        model: A network, or a compiled model; of one without declared inputs nothing is known, and nothing is cast.
        given: What it is called with: one feature, or a dict of several by the names of its inputs.

    Raises:
        UserCodeError: An input would be rounded.
    """
    if not model._is_graph_network:
        return
    by_name = dict(zip(model.input_names, model.inputs))
    if not isinstance(given, Mapping):
        given = {model.input_names[0]: given}
    elif isinstance(model.input, Mapping):
        by_name = dict(model.input)
    for name, feature in given.items():
        declared = by_name.get(name)
        if declared is None or not declared.dtype.is_integer or not tf.as_dtype(feature.dtype).is_floating:
            continue
        kind, wanted = tf.as_dtype(feature.dtype).name, declared.dtype.name
        raise UserCodeError(
            f"trainer.model: the model's input {name} is of {wanted}, and its feature of {kind}: Keras would round "
            "each value to an integer, such as those of standardised pixels to 0, 1 and 2",
            expected=f"an input of {kind}, or a feature of {wanted}",
            todo=f"make the Input without dtype={wanted!r}; or have the preprocessing_fn return {wanted}",
        )
