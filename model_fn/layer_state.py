"""What layers derive from their variables, outside of any graph."""

from __future__ import annotations

import tensorflow as tf


def finalize(model: tf.keras.Model) -> None:
    """Has each layer derive it anew, as Keras's own `load_weights` does: `Normalization` has a mean beside it.

    Args:
        model: Whose variables have been given other values, by no method of its own.
    """
    for layer in model._flatten_layers():
        # What a SavedModel brings may be no layer of Keras's.
        if finalize_layer := getattr(layer, "finalize_state", None):
            finalize_layer()
