"""Refuses what a variable that a partitioner has cut is given part by part, where it is meant for the whole.

Keras applies constraints and regularizers, and a compiled optimizer its update, to each part by itself: the norm of a
kernel's column, say, would be that of the column's piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute.sharded_variable import ShardedVariable

from tfx_estimator.pipeline.errors import UserCodeError

# What is tried is of that many numbers at most, and else of so many rows of each part.
_MOST_NUMBERS, _FEW_ROWS = 2**20, 2
# A constraint may act on small numbers only, or on large ones.
_SCALES = (1e-3, 1.0, 1e3)
_CLOSE = 1e-4


def refuse_parts(model: tf.keras.Model, target: str) -> None:
    """Refuses a model that would be trained into another one in the parts of its variables.

    Args:
        model: A network, or a compiled model, with all its variables.
        target: `trainer.model`.

    Raises:
        UserCodeError: A constraint or a regularizer comes to something else part by part; or a compiled optimizer does.
    """
    for name, cut, constraint, regularizer in _cut(model):
        shapes = [tuple(part.shape.as_list()) for part in cut.variables]
        if constraint is not None and _differs(constraint, shapes, lambda found: tf.concat(found, 0)):
            raise _error(target, f"the constraint {_named(constraint)} of {name}", "a constraint of each number or row")
        if regularizer is not None and _differs(regularizer, shapes, tf.add_n):
            raise _error(target, f"the regularizer {_named(regularizer)} of {name}", "a sum over all numbers or rows")
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or next(_cut(model), None) is None:
        return
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if getattr(optimizer, "clipnorm", None) is not None:
        raise _error(target, "the clipnorm of its optimizer", "global_clipnorm or clipvalue")
    if isinstance(optimizer, tf.keras.optimizers.Adafactor):
        raise _error(target, "its optimizer, Adafactor, with its means of rows and columns", "another optimizer")


def _cut(model: tf.keras.Model) -> Iterator[tuple[str, ShardedVariable, Any, Any]]:
    """Yields the variables of layers that were cut: their names, and the constraint and the regularizer of each."""
    for layer in model._flatten_layers():
        for attribute, value in vars(layer).items():
            if isinstance(value, ShardedVariable) and len(value.variables) > 1:
                regularizer = getattr(layer, f"{attribute}_regularizer", None)
                constraint = getattr(value.variables[0], "constraint", None)
                yield f"{layer.name}/{attribute}", value, constraint, regularizer


def _differs(function: Callable, shapes: Sequence[tuple[int, ...]], together: Callable) -> bool:
    """Tries a function on made-up numbers: is that of the parts, taken together, another one than that of the whole."""
    if sum(map(np.prod, shapes)) > _MOST_NUMBERS:
        shapes = [(min(rows, _FEW_ROWS), *others) for rows, *others in shapes]
    random = np.random.default_rng(0)
    for scale in _SCALES:
        parts = [tf.constant(random.normal(0, scale, shape), tf.float32) for shape in shapes]
        try:
            whole = function(tf.concat(parts, 0))
        except Exception:
            # It may want another shape, or a variable: nothing is known of it.
            return False
        try:
            found = together([function(part) for part in parts])
        except Exception:
            return True
        if not np.allclose(whole, found, rtol=_CLOSE, atol=_CLOSE * scale):
            return True
    return False


def _named(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _error(target: str, what: str, expected: str) -> UserCodeError:
    return UserCodeError(
        f"trainer.model: {target!r} returns a model with {what}: Keras applies it to each part of a variable that "
        "trainer.distribution.train.variable_partitioner cuts, and it would be another one than that of the whole",
        expected=f"{expected}, beside a variable_partitioner",
        todo="remove the variable_partitioner, have it cut larger variables only, or choose another one",
    )
