"""Keeps AutoGraph out of this project's own step, whose conversion takes 1 to 3 s in each process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf

Function = TypeVar("Function", bound=Callable)


def unconverted(function: Function) -> Function:
    """Excludes a function from AutoGraph, and not the layers that it calls, which Keras converts as usual.

    Within `tf.autograph.experimental.do_not_convert`, and within a tf.function with `autograph=False`, Keras would not
    convert a user's layers either.
    """
    autograph = tf.__internal__.autograph
    return autograph.tf_convert(function, autograph.control_status_ctx(), convert_by_default=False)
