"""Refuses a compiled optimizer that clips each part of a variable that a partitioner has cut by a norm of its own."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.distribute.sharded_variable import ShardedVariable

from tfx_estimator.pipeline.base.errors import UserCodeError


def refuse_clipped_parts(model: tf.keras.Model, target: str) -> None:
    """Refuses a model whose gradients Keras would clip part by part, not variable by variable.

    Args:
        model: A network, or a compiled model, with all its variables.
        target: `trainer.model`.

    Raises:
        UserCodeError: A variable was cut, and the optimizer has a clipnorm.
    """
    optimizer = getattr(model, "optimizer", None)
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if getattr(optimizer, "clipnorm", None) is not None and _is_cut(model):
        raise UserCodeError(
            f"trainer.model: {target!r} returns a model whose optimizer has a clipnorm: Keras clips by it each part of "
            "a variable that trainer.distribution.train.variable_partitioner cuts",
            expected="global_clipnorm or clipvalue, beside a variable_partitioner",
            todo="remove the variable_partitioner, have it cut larger variables only, or clip otherwise",
        )


def _is_cut(model: tf.keras.Model) -> bool:
    return any(
        isinstance(value, ShardedVariable) and len(value.variables) > 1
        for layer in model._flatten_layers()
        for value in vars(layer).values()
    )
