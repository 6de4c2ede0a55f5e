"""Values that layers derive from their variables, and keep beside them: `Normalization` keeps its mean so."""

from __future__ import annotations

import tensorflow as tf


def finalize(model: tf.keras.Model) -> None:
    """Has each layer derive them anew, as Keras's own `load_weights` does.

    Args:
        model: Its variables have just been given other values, in another way than by its `load_weights`.
    """
    for layer in model._flatten_layers():
        # A loaded SavedModel may hold what is no layer of Keras's.
        if finalize_layer := getattr(layer, "finalize_state", None):
            finalize_layer()
