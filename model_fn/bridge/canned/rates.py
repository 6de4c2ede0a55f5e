"""Recovers Keras schedules from learning rates that a graph computes from its step.

The functions of tf.compat.v1.train, such as `exponential_decay`, create a schedule, call it, and keep only its tensor.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.bridge.kept.reach import ancestors

# TensorFlow's own copy of Keras, which these functions use.
_OWN_COPY = "tensorflow.python.keras.optimizer_v2.learning_rate_schedule"
# Operations that read a variable.
_READS = {"VarHandleOp", "ReadVariableOp", "VariableV2", "Identity", "Cast"}


@contextlib.contextmanager
def recorded_schedules(graph: tf.Graph) -> Iterator[Callable[[Any], None]]:
    """Records the schedules of the global step in a graph; yields what replaces an optimizer's tensors by them."""
    called: dict[Any, Any] = {}
    classes = [
        vars(module)[name]
        for module in (tf.keras.optimizers.schedules, importlib.import_module(_OWN_COPY))
        for name, each in vars(tf.keras.optimizers.schedules).items()
        if isinstance(each, type) and "__call__" in vars(each) and name in vars(module)
    ]
    before = {each: each.__call__ for each in classes}

    def restore(optimizer: Any) -> None:
        for options in (vars(optimizer), getattr(optimizer, "_hyper", {})):
            for name, value in options.items():
                if tf.is_tensor(value) and value.ref() in called:
                    options[name] = _schedule(called[value.ref()], graph)

    def record(kind: type, call: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(schedule: Any, step: Any) -> Any:
            rate = call(schedule, step)
            if type(schedule) is kind and getattr(rate, "graph", None) is graph and _is_global(step, graph):
                called[rate.ref()] = schedule
            return rate

        return recorded

    try:
        for kind, call in before.items():
            kind.__call__ = record(kind, call)  # type: ignore[method-assign]
        yield restore
    finally:
        for kind, call in before.items():
            kind.__call__ = call  # type: ignore[method-assign]


def _is_global(step: Any, graph: tf.Graph) -> bool:
    """True for the graph's step, not one that is computed from it."""
    counter = tf.compat.v1.train.get_global_step(graph)
    reads = ancestors([tf.convert_to_tensor(step)], control=False)
    return counter is not None and counter.op in reads and {each.type for each in reads} <= _READS


def _schedule(called: Any, graph: tf.Graph) -> Any:
    """Returns Keras's schedule with the same options."""
    with graph.as_default(), tf.compat.v1.Session() as session:
        own = tf.nest.map_structure(lambda each: _number(each, session), called.get_config())
    return getattr(tf.keras.optimizers.schedules, type(called).__name__).from_config(own)


def _number(value: Any, session: tf.compat.v1.Session) -> Any:
    found = session.run(value) if tf.is_tensor(value) else value
    if isinstance(found, np.floating):
        return float(str(found))
    return found.item() if isinstance(found, np.generic) else found
