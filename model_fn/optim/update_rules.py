"""Each optimizer's update of one variable: the same operations, hence the same bits, on every path.

The updates are those of `tf.keras.optimizers`; `momentum` is that of `tf.compat.v1.train.MomentumOptimizer`, which
applies the learning rate to each update and not to the accumulated velocity. An update uses TensorFlow's fused
operation where there is one: on CPU that costs less than Keras's many small ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Optional

import tensorflow as tf

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Change:
    """One update of one variable, on its device.

    Args:
        gradient: Gradient of the global batch, of the variable's dtype: dense, of its shape, or of `rows` alone.
        slots: The optimizer's state for the variable, by name.
        rate: Learning rate, scalar of the variable's dtype.
        step: Number of this update, from 1; scalar of the variable's dtype.
        options: `Optimizer.resolved()`.
        rows: int [rows], the rows that have a gradient, each once; None is all of them.
    """

    variable: tf.Variable
    gradient: tf.Tensor
    slots: Mapping[str, tf.Variable]
    rate: tf.Tensor
    step: tf.Tensor
    options: Mapping[str, Any]
    rows: Optional[tf.Tensor] = None

    def number(self, option: str) -> tf.Tensor:
        """Returns an option as a scalar of the variable's dtype."""
        return tf.constant(self.options[option], self.rate.dtype)

    def handles(self, **slots: str) -> dict[str, tf.Tensor]:
        """Returns a fused operation's resource handles: the variable's, and the slots' by the operation's names."""
        return {"var": self.variable.handle, **{key: self.slots[slot].handle for key, slot in slots.items()}}


@dataclass(frozen=True)
class Rule:
    """One optimizer.

    Args:
        name: Prefix of its slots in checkpoints.
        apply: Creates the update's operation.
        slots: Returns the shape and initial value of each slot, from the options and the variable's shape.
        is_sparse: Returns whether a row without a gradient stays as it is, by the options: as TensorFlow's optimizers
            leave it. Others move all rows of an embedding in each step.
    """

    name: str
    apply: Callable[[Change], Any]
    slots: Callable[[Mapping[str, Any], Shape], dict[str, tuple[Shape, float]]]
    is_sparse: Callable[[Mapping[str, Any]], bool] = lambda options: False


def change_variable(rule: Rule, change: Change, finite: Optional[tf.Tensor] = None) -> Any:
    """Creates the operation of one update, after decoupled weight decay.

    Args:
        finite: bool scalar; False skips the update: see `precision.LossScale`. None never skips.
    """
    if finite is None:
        return _changed(rule, change)

    def changed() -> tf.Tensor:
        with tf.control_dependencies([_changed(rule, change)]):
            return tf.constant(True)

    return tf.cond(finite, changed, lambda: tf.constant(False))


def _changed(rule: Rule, change: Change) -> Any:
    if not change.options["decoupled_weight_decay"]:
        return rule.apply(change)
    # The decay must not run before the gradient is computed.
    with tf.control_dependencies([change.gradient]):
        decayed = change.variable.read_value() * change.number("decoupled_weight_decay") * change.rate
        decay = change.variable.assign_sub(decayed, read_value=False)
    with tf.control_dependencies([decay]):
        return rule.apply(change)


def _slots(*names: str, **by_option: str) -> Callable[[Mapping[str, Any], Shape], dict[str, tuple[Shape, float]]]:
    """Returns `Rule.slots` for zero-initialised slots of the variable's shape; `by_option` ones only if it is set."""
    return lambda options, shape: dict.fromkeys(
        (*names, *(slot for slot, option in by_option.items() if options[option])), (shape, 0.0)
    )


def _sgd(change: Change) -> Any:
    if change.rows is not None:
        updates = change.gradient * change.rate
        return tf.raw_ops.ResourceScatterSub(resource=change.variable.handle, indices=change.rows, updates=updates)
    if not change.options["momentum"]:
        return tf.raw_ops.ResourceApplyGradientDescent(**change.handles(), alpha=change.rate, delta=change.gradient)
    return tf.raw_ops.ResourceApplyKerasMomentum(
        **change.handles(accum="momentum"),
        lr=change.rate,
        grad=change.gradient,
        momentum=change.number("momentum"),
        use_nesterov=change.options["nesterov"],
    )


def _momentum(change: Change) -> Any:
    return tf.raw_ops.ResourceApplyMomentum(
        **change.handles(accum="momentum"),
        lr=change.rate,
        grad=change.gradient,
        # Cast through float32, as TensorFlow 1 does.
        momentum=tf.cast(tf.constant(change.options["momentum"], tf.float32), change.rate.dtype),
        use_nesterov=change.options["nesterov"],
    )


def _rmsprop(change: Change) -> Any:
    numbers = {key: change.number(key) for key in ("rho", "momentum", "epsilon")}
    if change.options["centered"]:
        return tf.raw_ops.ResourceApplyCenteredRMSProp(
            **change.handles(mg="mean", ms="square", mom="momentum"), lr=change.rate, grad=change.gradient, **numbers
        )
    return tf.raw_ops.ResourceApplyRMSProp(
        **change.handles(ms="square", mom="momentum"), lr=change.rate, grad=change.gradient, **numbers
    )


def _adam(change: Change) -> Any:
    beta1, beta2 = change.number("beta_1"), change.number("beta_2")
    values = {
        "beta1_power": tf.pow(beta1, change.step),
        "beta2_power": tf.pow(beta2, change.step),
        "lr": change.rate,
        "beta1": beta1,
        "beta2": beta2,
        "epsilon": change.number("epsilon"),
        "grad": change.gradient,
    }
    if change.options["amsgrad"]:
        return tf.raw_ops.ResourceApplyAdamWithAmsgrad(**change.handles(m="m", v="v", vhat="vhat"), **values)
    return tf.raw_ops.ResourceApplyAdam(**change.handles(m="m", v="v"), **values)


def _adadelta(change: Change) -> Any:
    return tf.raw_ops.ResourceApplyAdadelta(
        **change.handles(accum="square", accum_update="update"),
        lr=change.rate,
        rho=change.number("rho"),
        epsilon=change.number("epsilon"),
        grad=change.gradient,
    )


def _adagrad(change: Change) -> Any:
    values = {**change.handles(accum="square"), "lr": change.rate, "grad": change.gradient}
    if change.rows is not None:
        return tf.raw_ops.ResourceSparseApplyAdagrad(**values, indices=change.rows, use_locking=True)
    return tf.raw_ops.ResourceApplyAdagrad(**values)


def _adagrad_slots(options: Mapping[str, Any], shape: Shape) -> dict[str, tuple[Shape, float]]:
    # Keras adds epsilon to the sum in each step; here the initial sum contains it.
    return {"square": (shape, options["initial_accumulator_value"] + options["epsilon"])}


def _adamax(change: Change) -> Any:
    return tf.raw_ops.ResourceApplyAdaMax(
        **change.handles(m="m", v="v"),
        beta1_power=tf.pow(change.number("beta_1"), change.step),
        lr=change.rate,
        beta1=change.number("beta_1"),
        beta2=change.number("beta_2"),
        epsilon=change.number("epsilon"),
        grad=change.gradient,
    )


def _ftrl(change: Change) -> Any:
    # FTRL divides by the rate: at the end of a schedule, with a rate of 0, all weights would become NaN.
    def changed() -> tf.Tensor:
        with tf.control_dependencies([_apply_ftrl(change)]):
            return tf.constant(True)

    # In both branches after the gradient: ops that wait for the update must also wait for the step.
    with tf.control_dependencies([change.gradient]):
        moves = change.rate > 0.0
    return tf.cond(moves, changed, lambda: tf.constant(False))


def _apply_ftrl(change: Change) -> Any:
    values = {
        **change.handles(accum="square", linear="linear"),
        "grad": change.gradient,
        "lr": change.rate,
        "l1": change.number("l1_regularization_strength"),
        "l2": change.number("l2_regularization_strength") + change.number("beta") / (2.0 * change.rate),
        "l2_shrinkage": change.number("l2_shrinkage_regularization_strength"),
        "lr_power": change.number("learning_rate_power"),
    }
    if change.rows is not None:
        return tf.raw_ops.ResourceSparseApplyFtrlV2(**values, indices=change.rows, use_locking=True)
    return tf.raw_ops.ResourceApplyFtrlV2(**values)


def _ftrl_slots(options: Mapping[str, Any], shape: Shape) -> dict[str, tuple[Shape, float]]:
    return {"square": (shape, options["initial_accumulator_value"]), "linear": (shape, 0.0)}


def _nadam(change: Change) -> Any:
    """Source: Dozat, Incorporating Nesterov Momentum into Adam, 2016."""
    beta_1, beta_2, gradient = change.number("beta_1"), change.number("beta_2"), change.gradient
    decay = tf.constant(0.96, change.rate.dtype)
    current, following = (beta_1 * (1.0 - 0.5 * tf.pow(decay, change.step + more)) for more in (0.0, 1.0))
    product = change.slots["product"].read_value() * current
    m, v = (change.slots[name].read_value() for name in ("m", "v"))
    m += (gradient - m) * (1.0 - beta_1)
    v += (tf.square(gradient) - v) * (1.0 - beta_2)
    m_hat = following * m / (1.0 - product * following) + (1.0 - current) * gradient / (1.0 - product)
    v_hat = v / (1.0 - tf.pow(beta_2, change.step))
    update = m_hat * change.rate / (tf.sqrt(v_hat) + change.number("epsilon"))
    return _assign(change, update, product=product, m=m, v=v)


def _nadam_slots(options: Mapping[str, Any], shape: Shape) -> dict[str, tuple[Shape, float]]:
    return {"m": (shape, 0.0), "v": (shape, 0.0), "product": ((), 1.0)}


def _lion(change: Change) -> Any:
    """Source: Chen et al., Symbolic Discovery of Optimization Algorithms, 2023, https://arxiv.org/abs/2302.06675."""
    beta_1, beta_2, gradient = change.number("beta_1"), change.number("beta_2"), change.gradient
    m = change.slots["m"].read_value()
    update = change.rate * tf.math.sign(m * beta_1 + gradient * (1.0 - beta_1))
    return _assign(change, update, m=m * beta_2 + gradient * (1.0 - beta_2))


def _adafactor(change: Change) -> Any:
    """Source: Shazeer and Stern, Adafactor, 2018, https://arxiv.org/abs/1804.04235."""
    rate = tf.minimum(change.rate, tf.math.rsqrt(change.step))
    rate *= tf.maximum(change.number("epsilon_2"), _rms(change.variable.read_value()))
    square = tf.square(change.gradient) + change.number("epsilon_1")
    kept = 1.0 - tf.pow(change.step, change.number("beta_2_decay"))

    def follow(slot: str, value: tf.Tensor) -> tf.Tensor:
        return kept * change.slots[slot].read_value() + (1.0 - kept) * value

    if "square" in change.slots:
        new = {"square": follow("square", square)}
        mean = new["square"]
    else:
        rows = follow("rows", tf.reduce_mean(square, axis=-1))
        columns = follow("columns", tf.reduce_mean(square, axis=-2))
        new = {"rows": rows, "columns": columns}
        mean = (rows / tf.reduce_mean(rows, axis=-1, keepdims=True))[..., tf.newaxis] * columns[..., tf.newaxis, :]
    update = change.gradient * tf.math.rsqrt(mean)
    update /= tf.maximum(tf.ones([], update.dtype), _rms(update) / change.number("clip_threshold"))
    return _assign(change, rate * update, **new)


def _adafactor_slots(options: Mapping[str, Any], shape: Shape) -> dict[str, tuple[Shape, float]]:
    if len(shape) < 2:
        return {"square": (shape, 0.0)}
    return {"rows": (shape[:-1], 0.0), "columns": (shape[:-2] + shape[-1:], 0.0)}


def _rms(values: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(tf.reduce_mean(tf.square(values)))


def _assign(change: Change, update: tf.Tensor, **slots: tf.Tensor) -> tf.Operation:
    """Subtracts an update from the variable, and assigns the slots."""
    kept = [change.slots[name].assign(value, read_value=False) for name, value in slots.items()]
    return tf.group(change.variable.assign_sub(update, read_value=False), *kept)


RULES = {
    "sgd": Rule("SGD", _sgd, _slots(momentum="momentum"), lambda options: not options["momentum"]),
    "momentum": Rule("Momentum", _momentum, _slots("momentum")),
    "rmsprop": Rule("RMSprop", _rmsprop, _slots("square", "momentum", mean="centered")),
    "adam": Rule("Adam", _adam, _slots("m", "v", vhat="amsgrad")),
    "adamw": Rule("AdamW", _adam, _slots("m", "v", vhat="amsgrad")),
    "adadelta": Rule("Adadelta", _adadelta, _slots("square", "update")),
    "adagrad": Rule("Adagrad", _adagrad, _adagrad_slots, lambda options: True),
    "adamax": Rule("Adamax", _adamax, _slots("m", "v")),
    "adafactor": Rule("Adafactor", _adafactor, _adafactor_slots),
    "nadam": Rule("Nadam", _nadam, _nadam_slots),
    "ftrl": Rule("Ftrl", _ftrl, _ftrl_slots, lambda options: True),
    "lion": Rule("Lion", _lion, _slots("m")),
}
