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

from tfx_estimator.model_fn.bridge.tensors import GLOBAL_STEP
from tfx_estimator.pipeline.base.errors import UserCodeError

# Number of steps at which a schedule is evaluated.
_STEPS = 33
_UPDATE = re.compile(r"(?:Resource)?(?:Sparse)?Apply(\w+)")
_RATES = ("lr", "alpha")
# Scopes of TensorFlow's clipping functions, and of gradients.
_CLIP = re.compile(r"(?:^|/)(clip_by_norm|clip_by_global_norm|global_norm|clip_by_value)(?:_\d+)?/")
_GRADIENT = re.compile(r"_grad/|(?:^|/)gradient_tape/")


@dataclasses.dataclass(frozen=True)
class _Kind:
    """The declared optimizer of one of TensorFlow's update operations.

    Args:
        name: Name of the declared optimizer.
        slots: Its slots, by the operation's inputs.
        options: Its options, by the operation's inputs.
        more: Options that the operation's type implies.
        attributes: Options, by the operation's attributes.
        fixed: Inputs that must have the value that the declared optimizer implies.
    """

    name: str
    slots: Mapping[str, str] = dataclasses.field(default_factory=dict)
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    more: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    attributes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    fixed: Mapping[str, float] = dataclasses.field(default_factory=dict)


_RMS = {"rho": "rho", "momentum": "momentum", "epsilon": "epsilon"}
_ADAM = {"beta1": "beta_1", "beta2": "beta_2", "epsilon": "epsilon"}
_FTRL = {"lr_power": "learning_rate_power", "l1": "l1_regularization_strength", "l2": "l2_regularization_strength"}
_SHRINKAGE = {"l2_shrinkage": "l2_shrinkage_regularization_strength"}
_KINDS = {
    "GradientDescent": _Kind("sgd"),
    "Momentum": _Kind(
        "momentum", {"accum": "momentum"}, {"momentum": "momentum"}, attributes={"use_nesterov": "nesterov"}
    ),
    "KerasMomentum": _Kind(
        "sgd", {"accum": "momentum"}, {"momentum": "momentum"}, attributes={"use_nesterov": "nesterov"}
    ),
    "RMSProp": _Kind("rmsprop", {"ms": "square", "mom": "momentum"}, _RMS),
    "CenteredRMSProp": _Kind(
        "rmsprop", {"mg": "mean", "ms": "square", "mom": "momentum"}, _RMS, more={"centered": True}
    ),
    "Adagrad": _Kind("adagrad", {"accum": "square"}),
    # The declared one has no epsilon; Keras's default vanishes in the rounding of the square root.
    "AdagradV2": _Kind("adagrad", {"accum": "square"}, fixed={"epsilon": 1e-7}),
    "Adam": _Kind("adam", {"m": "m", "v": "v"}, _ADAM),
    "AdamWithAmsgrad": _Kind("adam", {"m": "m", "v": "v", "vhat": "vhat"}, _ADAM, more={"amsgrad": True}),
    "Ftrl": _Kind("ftrl", {"accum": "square", "linear": "linear"}, _FTRL),
    "FtrlV2": _Kind("ftrl", {"accum": "square", "linear": "linear"}, {**_FTRL, **_SHRINKAGE}),
}
_KNOWN = "SGD, Momentum, RMSProp, Adagrad, Adam or Ftrl of tf.compat.v1.train or tf.keras.optimizers.legacy"


@dataclasses.dataclass(frozen=True)
class Training:
    """The training that a graph implements.

    Args:
        trained: The trained variables, in creation order.
        others: The network's other variables.
        slots: The weight, and the slot in the declared optimizer, by the slot variable.
        hyperparameters: Variables with numbers of the optimizer, such as `beta1_power`.
        optimizer: Name and options of the declared optimizer; without a learning rate if it is a schedule.
        rates: Learning rates of a schedule, by step; empty for a constant.
        clips: TensorFlow's functions that clip gradients.
    """

    trained: list[str]
    others: list[str]
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
    reached = _ancestors([session.graph.as_graph_element(train_op)])
    kind, updates = _updates(reached)
    variables = {each.op.name: each for each in tf.compat.v1.global_variables()}
    inputs = [_inputs(each) for each in updates]
    slots = {each[key].op.name: (each["var"].op.name, slot) for each in inputs for key, slot in kind.slots.items()}
    trained = [each.op.name for each in tf.compat.v1.trainable_variables()]
    # Some variables, such as embeddings, have no single update operation; their slots are named by the same pattern.
    patterns = {name.replace(weight, "{}"): slot for name, (weight, slot) in slots.items()}
    for weight in trained:
        for pattern, slot in patterns.items():
            if (name := pattern.format(weight)) in variables:
                slots.setdefault(name, (weight, slot))
    numbers = {*kind.options, *kind.fixed, *_RATES, "beta1_power", "beta2_power"}
    tensors = [{key: each[key] for key in numbers & each.keys()} for each in inputs]
    values = session.run(tensors)
    if any(each != values[0] for each in values):
        raise UserCodeError(
            "the model_fn trains its weights by several optimizers, or by one with several rates",
            expected=f"one optimizer for all weights: {_KNOWN}",
            todo="convert a training by one of them",
        )
    for key, value in kind.fixed.items():
        if (found := _decimal(values[0][key])) != value:
            raise UserCodeError(
                f"{key} of the model_fn's {kind.name} is {found:g}, which cannot be declared",
                expected=f"{value:g}",
                todo="convert a training with that",
            )
    _check_powers(values[0], step)
    ops = {each.op for each in variables.values()}
    # Data dependencies only: control dependencies, such as moving averages, do not enter the value.
    reads = {key: _ancestors([each], control=False) & ops for key, each in tensors[0].items()}
    rate = next(key for key in _RATES if key in tensors[0])
    counters = [variables[op.name] for op in reads[rate] if variables[op.name].dtype.base_dtype.is_integer]
    rates = _rates(session, tensors[0][rate], counters, step, train_steps)
    options = {name: _decimal(values[0][key]) for key, name in kind.options.items()}
    attributes = {name: bool(updates[0].get_attr(key)) for key, name in kind.attributes.items()}
    read = {op.name for of_one in reads.values() for op in of_one} - {GLOBAL_STEP}
    scopes = {name.rpartition("/")[0] for name in read} - {""}
    # Stored hyperparameters that are never read, such as `decay`.
    read |= {name for name, each in variables.items() if name.rpartition("/")[0] in scopes and not each.shape.rank}
    read -= {*trained, *slots}
    others = [name for name in variables if name not in {*slots, *read, *trained, GLOBAL_STEP}]
    return Training(
        trained,
        others,
        slots,
        frozenset(read),
        {"name": kind.name, **kind.more, **options, **attributes, **_of(rates, values[0][rate])},
        rates,
        _clips(reached),
    )


def _updates(reached: Iterable[tf.Operation]) -> tuple[_Kind, list[tf.Operation]]:
    """Returns the weights' update operations, and their kind."""
    found: dict[str, list[tf.Operation]] = {}
    for each in reached:
        if (match := _UPDATE.fullmatch(each.type)) and match[1] in _KINDS:
            found.setdefault(match[1], []).append(each)
    if len(found) != 1:
        raise UserCodeError(
            f"the training graph of the model_fn has updates of {', '.join(sorted(found))}"
            if found
            else "the training graph of the model_fn has no update of an optimizer that can be declared",
            expected=f"one optimizer for all weights: {_KNOWN}",
            todo="convert a training by one of them",
        )
    ((name, updates),) = found.items()
    return _KINDS[name], updates


def _inputs(op: tf.Operation) -> dict[str, tf.Tensor]:
    return dict(zip((each.name for each in op.op_def.input_arg), op.inputs))


def _ancestors(roots: Iterable[Any], control: bool = True) -> set[tf.Operation]:
    """Returns operations and all that they depend on, optionally without control dependencies."""
    left = [each if isinstance(each, tf.Operation) else each.op for each in roots]
    found = set(left)
    while left:
        op = left.pop()
        new = {*(each.op for each in op.inputs), *(op.control_inputs if control else ())} - found
        found |= new
        left += new
    return found


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


def _check_powers(values: Mapping[str, Any], step: int) -> None:
    """Refuses powers of Adam's betas that do not match the step: it has made more updates, or fewer."""
    for beta in ("beta1", "beta2"):
        if (power := values.get(f"{beta}_power")) is not None:
            wanted = float(values[beta]) ** (step + 1)
            # Tolerant: TF1's optimizer multiplies them up.
            if abs(float(power) - wanted) > 1e-4:
                raise UserCodeError(
                    f"{beta}_power of the model_fn's optimizer is {float(power):g}, and {beta} to the power of "
                    f"{step + 1} is {wanted:g}",
                    expected=f"an optimizer that has made the {step} updates of the checkpoint's steps",
                    todo="convert a training whose global_step counts all updates, from 0",
                )


def _of(rates: Mapping[int, float], value: Any) -> dict[str, float]:
    return {} if rates else {"learning_rate": _decimal(value)}


def _decimal(value: Any) -> float:
    """Returns the shortest decimal that equals a float32."""
    return float(str(np.float32(value)))
