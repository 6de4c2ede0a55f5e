"""Reads the training graph of a whole model_fn: its optimizer, the slots of each weight, and the order of variables.

The operations that update the weights contain both: their inputs identify slots and hyperparameters, regardless of
names.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.bridge.kept.reach import ancestors
from tfx_estimator.model_fn.bridge.optimizers import FIXED, IMPLIED, ROWS
from tfx_estimator.model_fn.bridge.tensors import GLOBAL_STEP
from tfx_estimator.pipeline.base.errors import UserCodeError

# Number of steps at which a schedule is evaluated.
_STEPS = 33
_UPDATE = re.compile(r"(?:Resource)?(?:Sparse)?Apply(\w+)")
_RATES = ("lr", "alpha")
# Scopes of TensorFlow's clipping functions, and of gradients.
_CLIP = re.compile(r"(?:^|/)(clip_by_norm|clip_by_global_norm|global_norm|clip_by_value)(?:_\d+)?/")
_GRADIENT = re.compile(r"_grad/|(?:^|/)gradient_tape/")


_OPS = {op: (name, row) for name, row in ROWS.items() for op in row.ops}
_KNOWN = "SGD, Momentum, RMSProp, Adagrad, Adam or Ftrl of tf.compat.v1.train or tf.keras.optimizers.legacy"


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


def look(session: tf.compat.v1.Session, train_op: Any, step: int, train_steps: int) -> Training:
    """Reads the graph of a session whose variables are those of a checkpoint; it may change them.

    Args:
        step: Step of the checkpoint.

    Raises:
        UserCodeError: There is no optimizer, or several, or one that cannot be declared.
    """
    reached = ancestors([session.graph.as_graph_element(train_op)])
    kind, updates = _updates(reached)
    name, row = _OPS[kind]
    variables = {each.op.name: each for each in tf.compat.v1.global_variables()}
    inputs = [_inputs(each) for each in updates]
    slots = {
        each[slot.op].op.name: (each["var"].op.name, slot.ours)
        for each in inputs
        for slot in row.slots
        if slot.op in each
    }
    trained = [each.op.name for each in tf.compat.v1.trainable_variables()]
    # Some variables, such as embeddings, have no single update operation; their slots are named by the same pattern.
    patterns = {name.replace(weight, "{}"): slot for name, (weight, slot) in slots.items()}
    for weight in trained:
        for pattern, slot in patterns.items():
            if (own := pattern.format(weight)) in variables:
                slots.setdefault(own, (weight, slot))
    fixed, of_op = FIXED.get(kind, {}), {each.name: each.op for each in row.options}
    numbers = {*of_op.values(), *fixed, *_RATES, "beta1_power", "beta2_power"}
    tensors = [{key: each[key] for key in numbers & each.keys()} for each in inputs]
    values = session.run(tensors)
    if any(each != values[0] for each in values):
        raise UserCodeError(
            "the model_fn trains its weights by several optimizers, or by one with several rates",
            expected=f"one optimizer for all weights: {_KNOWN}",
            todo="convert a training by one of them",
        )
    for key, value in fixed.items():
        if (found := _decimal(values[0][key])) != value:
            raise UserCodeError(
                f"{key} of the model_fn's {name} is {found:g}, which cannot be declared",
                expected=f"{value:g}",
                todo="convert a training with that",
            )
    ops = {each.op for each in variables.values()}
    # Data dependencies only: control dependencies, such as moving averages, do not enter the value.
    reads = {key: ancestors([each], control=False) & ops for key, each in tensors[0].items()}
    rate = next(key for key in _RATES if key in tensors[0])
    counters = [variables[op.name] for op in reads[rate] if variables[op.name].dtype.base_dtype.is_integer]
    rates = _rates(session, tensors[0][rate], counters, step, train_steps)
    options = {option: _decimal(values[0][op]) for option, op in of_op.items() if op in values[0]}
    options |= {option: updates[0].get_attr(op) for option, op in of_op.items() if op in updates[0].node_def.attr}
    read = {op.name for of_one in reads.values() for op in of_one} - {GLOBAL_STEP}
    scopes = {name.rpartition("/")[0] for name in read} - {""}
    # Stored hyperparameters that are never read, such as `decay`.
    read |= {name for name, each in variables.items() if name.rpartition("/")[0] in scopes and not each.shape.rank}
    read -= {*trained, *slots}
    return Training(
        slots,
        frozenset(read),
        {"name": name, **IMPLIED.get(kind, {}), **options, **_of(rates, values[0][rate])},
        rates,
        _clips(reached),
    )


def _updates(reached: Iterable[tf.Operation]) -> tuple[str, list[tf.Operation]]:
    """Returns the weights' update operations, and their kind in the table."""
    found: dict[str, list[tf.Operation]] = {}
    for each in reached:
        if (match := _UPDATE.fullmatch(each.type)) and match[1] in _OPS:
            found.setdefault(match[1], []).append(each)
    if len(found) != 1:
        raise UserCodeError(
            f"the training graph of the model_fn has updates of {', '.join(sorted(found))}"
            if found
            else "the training graph of the model_fn has no update of an optimizer that can be declared",
            expected=f"one optimizer for all weights: {_KNOWN}",
            todo="convert a training by one of them",
        )
    ((kind, updates),) = found.items()
    return kind, updates


def _inputs(op: tf.Operation) -> dict[str, tf.Tensor]:
    return dict(zip((each.name for each in op.op_def.input_arg), op.inputs))


def _clips(reached: set[tf.Operation]) -> list[str]:
    """Returns the clipping functions applied to gradients, unlike those in layers, before the gradients."""
    found = {each for each in reached if _GRADIENT.search(each.name)}
    left = list(found)
    while left:
        new = {op for each in left.pop().outputs for op in each.consumers()} & reached - found
        found |= new
        left += new
    names = [each.name for each in found if not _GRADIENT.search(each.name)]
    return sorted({match[1] for name in names if (match := _CLIP.search(name))})


def _rates(
    session: tf.compat.v1.Session, rate: tf.Tensor, counters: list[tf.Variable], step: int, train_steps: int
) -> dict[int, float]:
    """Returns learning rates at steps of the whole training; empty if they are all equal."""
    if not counters:
        return {}
    found = {}
    for each in sorted({step, *np.linspace(0, train_steps, _STEPS).astype(int).tolist()}):
        for counter in counters:
            counter.load(each, session)
        found[each] = float(session.run(rate))
    return found if len(set(found.values())) > 1 else {}


def _of(rates: Mapping[int, float], value: Any) -> dict[str, float]:
    return {} if rates else {"learning_rate": _decimal(value)}


def _decimal(value: Any) -> float:
    """Returns the shortest decimal that equals a float32."""
    return float(str(np.float32(value)))
