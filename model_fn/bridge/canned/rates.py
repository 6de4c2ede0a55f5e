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

from tfx_estimator.model_fn.bridge.canned.refusal import refused

# TensorFlow's own copy of Keras, which these functions use.
_OWN_COPY = "tensorflow.python.keras.optimizer_v2.learning_rate_schedule"
# Number of steps at which rates are compared.
_STEPS = 33
_MOST = 1e-5


@contextlib.contextmanager
def recorded_schedules(graph: tf.Graph) -> Iterator[Callable[[Any], None]]:
    """Records the schedules called in a graph; yields a function that replaces an optimizer's tensors by them.

    Raises:
        UserCodeError: A rate comes from a schedule, but not of the global step.
    """
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
                    options[name] = _schedule(called[value.ref()], value, type(optimizer).__name__)

    def record(kind: type, call: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(schedule: Any, step: Any) -> Any:
            rate = call(schedule, step)
            if type(schedule) is kind and getattr(rate, "graph", None) is graph:
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


def _schedule(called: Any, rate: tf.Tensor, optimizer: str) -> Any:
    """Returns Keras's schedule with the same options, after a check that its rates are those of the graph."""
    kind = getattr(tf.keras.optimizers.schedules, type(called).__name__)
    counter = tf.compat.v1.train.get_global_step(rate.graph)
    with rate.graph.as_default(), tf.compat.v1.Session() as session:
        own = tf.nest.map_structure(lambda each: _number(each, session), called.get_config())
        schedule = kind.from_config(own)
        new = schedule(counter)
        session.run(tf.compat.v1.global_variables_initializer())
        for step in _steps(own):
            counter.load(step, session)
            one, other = session.run([rate, new])
            if not np.isclose(one, other, rtol=_MOST, atol=0):
                raise refused(
                    f"the learning rate of {optimizer}, which is {one:g} at step {step} where {kind.__name__} has "
                    f"{other:g},",
                    "compute it from tf.compat.v1.train.get_global_step(), unchanged",
                )
    return schedule


def _steps(options: Any) -> list[int]:
    """Returns steps to compare: up to twice the largest number in the options, and each number and the next."""
    named = {int(each) for each in tf.nest.flatten(options) if isinstance(each, (int, float))}
    spread = np.linspace(0, 2 * max(named) + 2, _STEPS).astype(int).tolist()
    return sorted({*spread, *named, *(each + 1 for each in named)})


def _number(value: Any, session: tf.compat.v1.Session) -> Any:
    found = session.run(value) if tf.is_tensor(value) else value
    if isinstance(found, np.floating):
        return float(str(found))
    return found.item() if isinstance(found, np.generic) else found
