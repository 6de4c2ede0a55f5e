"""What optimizers do while a model_fn is called: the gradients that they apply, and their learning rates."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any
from unittest import mock

import tensorflow as tf

from tfx_estimator.model_fn.bridge.kept.reach import ancestors

# Attributes of TensorFlow's optimizers, and of most others, with the rate that their updates use.
_RATES = ("_lr_t", "_learning_rate_tensor", "_lr", "_learning_rate", "learning_rate")


@dataclasses.dataclass
class Applied:
    """A call of apply_gradients, of operations `before` to `after`; with the wrapped optimizers and their rates."""

    gradients: list[Any]
    trained: list[Any]
    rates: list[tf.Tensor] = dataclasses.field(default_factory=list)
    before: int = 0
    after: int = 0
    optimizers: list[Any] = dataclasses.field(default_factory=list)


@contextlib.contextmanager
def recorded(graph: tf.Graph) -> Iterator[list[Applied]]:
    """Records the calls of apply_gradients in this context; those that such a call makes belong to it."""
    found: list[Applied] = []
    is_inside = False

    def recording(apply: Any) -> Any:
        def apply_gradients(optimizer: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal is_inside
            given = list(grads_and_vars)
            if is_outer := not is_inside:
                trained = {id(variable): each for each, variable in given if each is not None}
                variables = [each for _, each in given if id(each) in trained]
                found.append(Applied(list(trained.values()), variables, before=_count(graph)))
            now, is_inside = found[-1], True
            now.optimizers.append(optimizer)
            try:
                return apply(optimizer, given, *args, **kwargs)
            finally:
                is_inside = not is_outer
                now.rates += [
                    each
                    for each in map(vars(optimizer).get, _RATES)
                    if isinstance(each, tf.Tensor) and each.dtype.is_floating
                ]
                now.after = _count(graph)

        return apply_gradients

    def recording_rate(decayed: Any) -> Any:
        def _decayed_lr(*args: Any) -> tf.Tensor:
            # It may be a variable, which has no tensor of its own.
            rate = tf.identity(decayed(*args))
            if is_inside:
                found[-1].rates.append(rate)
            return rate

        return _decayed_lr

    of_keras = tf.keras.optimizers.legacy.Optimizer
    with contextlib.ExitStack() as stack:
        for kind in (*_kinds(tf.compat.v1.train.Optimizer), *_kinds(of_keras)):
            stack.enter_context(mock.patch.object(kind, "apply_gradients", recording(vars(kind)["apply_gradients"])))
        stack.enter_context(mock.patch.object(of_keras, "_decayed_lr", recording_rate(of_keras._decayed_lr)))
        yield found


def scale(graph: tf.Graph, applied: list[Applied], factor: str) -> bool:
    """Multiplies the rates where updates use them by a new local variable; False, unchanged, if one cannot be."""
    operations = graph.get_operations()
    users = []
    for call in applied:
        made = operations[call.before : call.after]
        rates = {each.name: each for each in call.rates if each.graph is graph}
        # One that the call has computed from another is multiplied with that.
        derived = {
            name
            for name, rate in rates.items()
            if rate.op in made and {each.op for each in rates.values() if each is not rate} & ancestors([rate])
        }
        users.append({name: [op for op in made if name in _inputs(op)] for name in rates if name not in derived})
    if not users or not all(any(of_rate.values()) for of_rate in users):
        return False
    with graph.as_default():
        variable = tf.compat.v1.get_variable(
            factor, [], tf.float32, tf.compat.v1.ones_initializer(), trainable=False, use_resource=True,
            collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
        )  # fmt: skip
        for name, ops in (pair for of_rate in users for pair in of_rate.items()):
            rate = graph.get_tensor_by_name(name)
            scaled = rate * tf.cast(variable, rate.dtype)
            for op in ops:
                for index, each in enumerate(_inputs(op)):
                    if each == name:
                        op._update_input(index, scaled)
    return True


def _inputs(op: tf.Operation) -> list[str]:
    return [each.name for each in op.inputs]


def _kinds(base: Any) -> list[Any]:
    """Returns the classes from this one down that have an apply_gradients of their own."""
    below = [each for kind in base.__subclasses__() for each in _kinds(kind)]
    return list(dict.fromkeys([*([base] if "apply_gradients" in vars(base) else []), *below]))


def _count(graph: tf.Graph) -> int:
    return len(graph.get_operations())
