"""Methods by which a class of the user's trains and evaluates. Keras calls them only in a compiled model."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfx_estimator.model_fn.keras_model import is_compiled
from tfx_estimator.pipeline.base.errors import UserCodeError

_METHODS = ("train_step", "test_step", "compute_loss", "compute_metrics")


def own_methods(model: tf.keras.Model) -> list[str]:
    """Returns the names of the methods of training and evaluation that a model does not have from Keras.

    Args:
        model: A network, or a compiled model.
    """
    return [name for name in _METHODS if getattr(type(model), name) is not getattr(tf.keras.Model, name)]


def refuse_own_methods(network: Any) -> None:
    """Refuses a network whose methods would never be called: its loss and its steps are the declaration's.

    Args:
        network: What the user's function returned; what is no model, or is compiled, passes.

    Raises:
        UserCodeError: It has such methods.
    """
    # AutoGraph of TensorFlow 2.21, which looks through what a replica runs, does not know `:=`.
    own = own_methods(network) if isinstance(network, tf.keras.Model) and not is_compiled(network) else []
    if not own:
        return
    named = " and a ".join(own)
    raise UserCodeError(
        f"trainer.model: the network, a {type(network).__name__} that is not compiled, has a {named} of its own, which "
        "would never be called: a network is trained by the declared optimizer, and by the cross-entropy of its logits",
        expected="a compiled model, on path keras or keras_custom_loop, or a network without one",
        todo=f"compile the model in the function, with its loss; or remove {' and '.join(own)}",
    )
