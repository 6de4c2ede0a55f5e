"""Reads how a whole model_fn trains: its optimizer and learning rate, and the slots of each weight."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.bridge.kept.optimizers import Applied
from tfx_estimator.model_fn.bridge.kept.reach import ancestors, descendants
from tfx_estimator.model_fn.bridge.optimizers import Option, Row, numbers_of, row_of, saved_name, slots_of
from tfx_estimator.model_fn.bridge.tensors import GLOBAL_STEP
from tfx_estimator.pipeline.base.errors import UserCodeError

# Number of steps at which a schedule is evaluated.
_STEPS = 33
# Scopes of TensorFlow's clipping functions, and of gradients.
_CLIP = re.compile(r"(?:^|/)(clip_by_norm|clip_by_global_norm|global_norm|clip_by_value)(?:_\d+)?/")
_GRADIENT = re.compile(r"_grad/|(?:^|/)gradient_tape/")
_KNOWN = "SGD, Momentum, RMSProp, Adagrad, Adam or Ftrl of tf.compat.v1.train or tf.keras.optimizers.legacy"
# Keras's default vanishes in the rounding of the square root; the declared Adagrad has none.
_NO_EPSILON = 1e-7


@dataclasses.dataclass(frozen=True)
class Training:
    """The training that a graph implements.

    Args:
        slots: The weight, and the slot in the declared optimizer, by the slot variable.
        hyperparameters: Variables with numbers of the optimizer, such as `beta1_power`.
        optimizer: Name and options of the declared optimizer; without a learning rate if it is a schedule.
        rates: Learning rates of a schedule, by step; empty for a constant.
        clips: TensorFlow's functions that clip gradients.
    """

    slots: dict[str, tuple[str, str]]
    hyperparameters: frozenset[str]
    optimizer: dict[str, Any]
    rates: dict[int, float]
    clips: list[str]


def look(
    session: tf.compat.v1.Session,
    train_op: Any,
    applied: Sequence[Applied],
    step: int,
    train_steps: int,
    feed: Optional[Mapping[Any, Any]] = None,
) -> Training:
    """Reads the training of a session with a checkpoint's variables, which may change; a rate may depend on `feed`."""
    optimizer, row = _optimizer(applied)
    found = slots_of(optimizer, row, tf.compat.v1.trainable_variables())
    slots = {name: (weight, slot.ours) for name, (weight, slot) in found.items()}
    hyper = getattr(optimizer, "_hyper", {})
    values = {each.name: hyper.get(each.name, _attribute(optimizer, each)) for each in row.options}
    if row.name == "adagrad" and (epsilon := getattr(optimizer, "epsilon", _NO_EPSILON)) != _NO_EPSILON:
        raise UserCodeError(
            f"epsilon of the model_fn's {row.name} is {epsilon:g}, which cannot be declared",
            expected=f"{_NO_EPSILON:g}",
            todo="convert a training with that",
        )
    run = functools.partial(session.run, feed_dict=feed)
    options = {key: _plain(run, each) for key, each in values.items() if each is not None}
    rate = next(each.rates[0] for each in applied if optimizer in each.optimizers)
    constant = {"learning_rate": _plain(run, rate)}
    rates = _rates(session, run, rate, step, train_steps)
    numbers = {saved_name(each) for each in numbers_of(optimizer).values()} - {GLOBAL_STEP}
    clips = _clips(ancestors([session.graph.as_graph_element(train_op)]))
    return Training(
        slots, frozenset(numbers), {"name": row.name, **options, **({} if rates else constant)}, rates, clips
    )


def _attribute(optimizer: Any, option: Option) -> Any:
    """Returns an option that is no variable, by the name of either class."""
    names = filter(None, (option.old, option.name))
    return next((getattr(optimizer, name) for name in names if hasattr(optimizer, name)), None)


def _optimizer(applied: Sequence[Applied]) -> tuple[Any, Row]:
    """Returns the only optimizer, without those that wrap it."""
    found = {id(each): each for call in applied for each in call.optimizers}
    known = [(each, row) for each in found.values() if (row := row_of(each)) is not None]
    if len(known) != 1:
        kinds = ", ".join(sorted(type(each).__name__ for each in found.values()))
        raise UserCodeError(
            f"the model_fn trains its weights by {kinds or 'no apply_gradients of an optimizer'}",
            expected=f"one optimizer for all weights: {_KNOWN}",
            todo="convert a training by one of them",
        )
    return known[0]


def _clips(reached: set[tf.Operation]) -> list[str]:
    """Returns the clipping functions applied to gradients, unlike those in layers, before the gradients."""
    found = descendants({each for each in reached if _GRADIENT.search(each.name)}) & reached
    names = [each.name for each in found if not _GRADIENT.search(each.name)]
    return sorted({match[1] for name in names if (match := _CLIP.search(name))})


def _rates(
    session: tf.compat.v1.Session, run: Callable[[Any], Any], rate: tf.Tensor, step: int, train_steps: int
) -> dict[int, float]:
    """Returns learning rates at steps of the whole training; empty if they are all equal."""
    # Data dependencies only: control dependencies, such as moving averages, do not enter the value.
    reads = ancestors([rate], control=False)
    counters = [each for each in tf.compat.v1.global_variables() if each.op in reads and each.dtype.is_integer]
    found = {}
    for each in sorted({step, *np.linspace(0, train_steps, _STEPS).astype(int).tolist()}) if counters else ():
        for counter in counters:
            counter.load(each, session)
        found[each] = float(run(rate))
    return found if len(set(found.values())) > 1 else {}


def _plain(run: Callable[[Any], Any], given: Any) -> Any:
    """Returns a bool, or the shortest decimal that equals a float32."""
    given = run(given) if tf.is_tensor(given) else given() if callable(given) else given
    return given if isinstance(given, bool) else float(str(np.float32(given)))
