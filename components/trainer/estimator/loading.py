"""Skips load_weights when the network function is called again inside the Estimator graph."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfx_estimator.components.trainer.patch import Patch
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.base.stack import keras2

# Of the thread: each replica calls the function in its own.
_LOADED = contextvars.ContextVar("loaded", default=False)


@contextlib.contextmanager
def loaded_before() -> Iterator[None]:
    """Has Keras write no weights while the function is called in a graph: the variables begin with them anyway.

    Raises:
        UserCodeError: The function needs a session of Keras's beside it, which cannot be opened.
    """
    _PATCH.apply()
    token = _LOADED.set(True)
    try:
        yield
    except tf.errors.OpError as error:
        raise UserCodeError(
            "trainer.model: the function gives its network weights in a way that fails in an Estimator's graph: "
            f"{type(error).__name__}: {error.message.splitlines()[0] if error.message else error}",
            expected="set_weights, or load_weights of a file that ends with .h5",
            todo="load them so; or set trainer.path: keras; or declare trainer.warm_start, in place of loading",
        ) from error
    finally:
        _LOADED.reset(token)


def _set_outside_of_a_graph(original: Any, tuples: Any) -> None:
    if tf.executing_eagerly() or not _LOADED.get():
        original(tuples)


_PATCH = Patch(
    f"{keras2.NAME}.src.backend:batch_set_value",
    _set_outside_of_a_graph,
    reason="in an Estimator's graph Keras writes weights in a session of its own, in which nobody trains; beside "
    "parameter servers it cannot open one, and under central_storage it cannot write",
    until="there is no tf.estimator",
)
