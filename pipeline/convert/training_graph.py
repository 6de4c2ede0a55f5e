"""What the training graph of a whole model_fn tells: its optimizer, whose slots are whose, and the variables' order.

The operations that update the weights have both: a slot and a hyperparameter are known by the input that they are of,
whatever they are named.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.optim.schedules import learning_rate
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.optimizer import OF_OPTIMIZERS, OF_SCHEDULES, Optimizer
from tfx_estimator.pipeline.convert.tensors import GLOBAL_STEP

# At how many steps a schedule is looked at.
_STEPS = 33
_UPDATE = re.compile(r"(?:Resource)?(?:Sparse)?Apply(\w+)")
_RATES = ("lr", "alpha")
# Not those that draw the same of the same seed.
_DRAWN = re.compile(r"(?!Stateless).*(Random|Multinomial|Normal|StatefulUniform|RngRead)")
# Scopes of TensorFlow's functions that clip, and of gradients themselves.
_CLIP = re.compile(r"(?:^|/)(clip_by_norm|clip_by_global_norm|global_norm|clip_by_value)(?:_\d+)?/")
_GRADIENT = re.compile(r"_grad/|(?:^|/)gradient_tape/")
_CLIPS = ("clip_norm", "global_clip_norm", "clip_value")


@dataclasses.dataclass(frozen=True)
class _Kind:
    """An update of TensorFlow's, as a declaration has it.

    Args:
        name: Of the declared optimizer.
        slots: Its slots, by the operation's inputs.
        options: Its options, by the operation's inputs.
        more: Options that the operation itself says.
        attributes: Options, by the operation's attributes.
        fixed: Inputs that the declared optimizer has one value of.
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
    # The declared one has no epsilon; Keras's default is lost in the rounding of the root.
    "AdagradV2": _Kind("adagrad", {"accum": "square"}, fixed={"epsilon": 1e-7}),
    "Adam": _Kind("adam", {"m": "m", "v": "v"}, _ADAM),
    "AdamWithAmsgrad": _Kind("adam", {"m": "m", "v": "v", "vhat": "vhat"}, _ADAM, more={"amsgrad": True}),
    "Ftrl": _Kind("ftrl", {"accum": "square", "linear": "linear"}, _FTRL),
    "FtrlV2": _Kind("ftrl", {"accum": "square", "linear": "linear"}, {**_FTRL, **_SHRINKAGE}),
}
_KNOWN = "SGD, Momentum, RMSProp, Adagrad, Adam or Ftrl of tf.compat.v1.train or tf.keras.optimizers.legacy"


@dataclasses.dataclass(frozen=True)
class Training:
    """What was found.

    Args:
        trained: The trained variables, in the order of their creation.
        others: The other ones that belong to the network.
        slots: The weight, and the slot in the declared optimizer, of each variable that an optimizer keeps.
        hyperparameters: Variables that are numbers of the optimizer, such as `beta1_power`.
        optimizer: Name and options of the declared one; of a schedule without the learning rate.
        rates: The learning rate by the step, of a schedule.
        clips: How gradients are clipped, by TensorFlow's functions.
    """

    trained: list[str]
    others: list[str]
    slots: dict[str, tuple[str, str]]
    hyperparameters: frozenset[str]
    optimizer: dict[str, Any]
    rates: dict[int, float]
    clips: list[str]

    def declared(self, section: Optimizer, train_steps: int) -> Optimizer:
        """Returns the declared optimizer that trains as this one.

        Args:
            section: What is declared: its schedule, clipping and weight decay; other options if it is of this name.

        Raises:
            UserCodeError: The learning rate is a schedule, and not that of the section; or this one clips gradients,
                and the section does not.
        """
        name, values = self.optimizer["name"], section.dict()
        if section.name != name:
            values |= dict.fromkeys(OF_OPTIMIZERS)
        # A step whose gradients are small is the same without.
        if self.clips and all(values[each] is None for each in _CLIPS):
            raise UserCodeError(
                f"the model_fn clips its gradients by {', '.join(self.clips)}, and its graph does not tell how far",
                expected="trainer.optimizer.clip_norm, global_clip_norm or clip_value, as the model_fn clips",
                todo="write it into the declaration, and name that by --declaration",
            )
        if not self.rates:
            values |= {**dict.fromkeys(OF_SCHEDULES), "schedule": "constant", "warmup_steps": 0, "scaling": "none"}
        elif not all(
            np.isclose(float(learning_rate(section, train_steps, tf.constant(step))), rate, rtol=1e-4, atol=1e-9)
            for step, rate in self.rates.items()
        ):
            told = list(self.rates.items())
            shown = ", ".join(f"{rate:.6g} at step {step}" for step, rate in told[:: max(len(told) // 4, 1)])
            raise UserCodeError(
                f"the learning rate of the model_fn is a schedule, which its graph does not tell: {shown}",
                expected=f"a trainer.optimizer with name: {name} and a schedule of these rates",
                todo="write it into the declaration, and name that by --declaration",
            )
        return Optimizer.parse_obj({**values, **self.optimizer})


def look(session: tf.compat.v1.Session, train_op: Any, step: int, train_steps: int) -> Training:
    """Reads the graph of a session, whose variables are those of a checkpoint, and may be others after it.

    Args:
        step: Of the checkpoint.

    Raises:
        UserCodeError: There is no optimizer, or several, or one that no declaration has.
    """
    reached = _ancestors([session.graph.as_graph_element(train_op)])
    kind, updates = _updates(reached)
    variables = {each.op.name: each for each in tf.compat.v1.global_variables()}
    inputs = [_inputs(each) for each in updates]
    slots = {each[key].op.name: (each["var"].op.name, slot) for each in inputs for key, slot in kind.slots.items()}
    trained = [each.op.name for each in tf.compat.v1.trainable_variables()]
    # An optimizer updates some by no operation of its own, those of an embedding, and names their slots alike.
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
            "the model_fn trains its weights by several optimizers, or one with several rates",
            expected=f"one optimizer for all weights: {_KNOWN}",
            todo="convert a training by one of them",
        )
    for key, value in kind.fixed.items():
        if (found := _decimal(values[0][key])) != value:
            raise UserCodeError(
                f"{key} of the model_fn's {kind.name} is {found:g}, which no declaration has",
                expected=f"{value:g}",
                todo="convert a training with that",
            )
    _check_powers(values[0], step)
    ops = {each.op for each in variables.values()}
    # What they are computed from: what is only to be done before them, such as moving averages, is no part of that.
    reads = {key: _ancestors([each], control=False) & ops for key, each in tensors[0].items()}
    rate = next(key for key in _RATES if key in tensors[0])
    counters = [variables[op.name] for op in reads[rate] if variables[op.name].dtype.base_dtype.is_integer]
    rates = _rates(session, tensors[0][rate], counters, step, train_steps)
    options = {name: _decimal(values[0][key]) for key, name in kind.options.items()}
    attributes = {name: bool(updates[0].get_attr(key)) for key, name in kind.attributes.items()}
    read = {op.name for of_one in reads.values() for op in of_one} - {GLOBAL_STEP}
    scopes = {name.rpartition("/")[0] for name in read} - {""}
    # Such as `decay`, which is kept, and not read.
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


def draws(graph: tf.Graph, train_op: Any = None) -> list[str]:
    """Returns the scopes of what draws by chance in a graph; with an operation, in what is needed for that."""
    wanted = None if train_op is None else {each.name for each in _ancestors([graph.as_graph_element(train_op)])}
    definition = graph.as_graph_def()
    nodes = [each for each in definition.node if wanted is None or each.name in wanted]
    nodes += [each for function in definition.library.function for each in function.node_def]
    return sorted({each.name.rpartition("/")[0] for each in nodes if _DRAWN.match(each.op)})


def _updates(reached: Iterable[tf.Operation]) -> tuple[_Kind, list[tf.Operation]]:
    """The updates of weights among operations, and of which kind they are."""
    found: dict[str, list[tf.Operation]] = {}
    for each in reached:
        if (told := _UPDATE.fullmatch(each.type)) and told[1] in _KINDS:
            found.setdefault(told[1], []).append(each)
    if len(found) != 1:
        raise UserCodeError(
            f"the training graph of the model_fn has updates of {', '.join(sorted(found))}"
            if found
            else "the training graph of the model_fn has no update of an optimizer that a declaration has as well",
            expected=f"one optimizer for all weights: {_KNOWN}",
            todo="convert a training by one of them",
        )
    ((name, updates),) = found.items()
    return _KINDS[name], updates


def _inputs(op: tf.Operation) -> dict[str, tf.Tensor]:
    return dict(zip((each.name for each in op.op_def.input_arg), op.inputs))


def _ancestors(roots: Iterable[Any], control: bool = True) -> set[tf.Operation]:
    """The operations that are needed for others, and these; by what they compute alone, or also by their order."""
    left = [each if isinstance(each, tf.Operation) else each.op for each in roots]
    found = set(left)
    while left:
        op = left.pop()
        new = {*(each.op for each in op.inputs), *(op.control_inputs if control else ())} - found
        found |= new
        left += new
    return found


def _clips(reached: set[tf.Operation]) -> list[str]:
    """The functions that clip what is computed from gradients: those of a layer clip what gradients are computed of."""
    found = {each for each in reached if _GRADIENT.search(each.name)}
    left = list(found)
    while left:
        new = {op for each in left.pop().outputs for op in each.consumers()} & reached - found
        found |= new
        left += new
    names = [each.name for each in found if not _GRADIENT.search(each.name)]
    return sorted({told[1] for name in names if (told := _CLIP.search(name))})


def _rates(
    session: tf.compat.v1.Session, rate: tf.Tensor, counters: list[tf.Variable], step: int, train_steps: int
) -> dict[int, float]:
    """The learning rate at steps of the whole training; none if it is always the same."""
    if not counters:
        return {}
    found = {}
    for each in sorted({step, *np.linspace(0, train_steps, _STEPS).astype(int).tolist()}):
        for counter in counters:
            counter.load(each, session)
        found[each] = float(session.run(rate))
    return found if len(set(found.values())) > 1 else {}


def _check_powers(values: Mapping[str, Any], step: int) -> None:
    """Are the powers of Adam's betas those of the step; else it has made more updates, or fewer."""
    for beta in ("beta1", "beta2"):
        if (power := values.get(f"{beta}_power")) is not None:
            wanted = float(values[beta]) ** (step + 1)
            # The old optimizer multiplied them up.
            if abs(float(power) - wanted) > 1e-4:
                raise UserCodeError(
                    f"{beta}_power of the model_fn's optimizer is {float(power):g}, and {beta} to the power of "
                    f"{step + 1} is {wanted:g}",
                    expected=f"an optimizer that has made the {step} updates of the checkpoint's steps",
                    todo="convert a training that counts its steps by global_step alone, from 0 on",
                )


def _of(rates: Mapping[int, float], value: Any) -> dict[str, float]:
    return {} if rates else {"learning_rate": _decimal(value)}


def _decimal(value: Any) -> float:
    """The shortest number that is this one in float32, as it was written."""
    return float(str(np.float32(value)))
