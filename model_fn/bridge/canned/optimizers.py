"""The optimizers of a canned Estimator as equivalent optimizers of Keras 2."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.bridge import optimizers
from tfx_estimator.model_fn.bridge.canned.refusal import refused
from tfx_estimator.model_fn.bridge.canned.text import Source
from tfx_estimator.model_fn.bridge.optimizers import ROWS, Row

_LEGACY = ("SGD", "Adam", "Adagrad", "Ftrl", "RMSprop")
_SHRINKS = ("l1_regularization_strength", "l2_regularization_strength")
# Default values, which are not written.
_DEFAULTS = {"decay": 0.0, "momentum": 0.0, "nesterov": False, "amsgrad": False, "centered": False, "beta": 0.0}
_DEFAULTS |= dict.fromkeys(_SHRINKS, 0.0) | {"l2_shrinkage_regularization_strength": 0.0}
_PROXIMAL = ROWS["adagrad"]._replace(
    keras="ProximalAdagrad",
    old="ProximalAdagradOptimizer",
    options=[each for each in ROWS["ftrl"].options if each.name in (*_SHRINKS, "initial_accumulator_value")],
)
_OLD = {row.old: row for row in (*ROWS.values(), _PROXIMAL) if row.old}
# A momentum of 0 with which Keras skips slots of rows that no example has, and still has a momentum slot.
ALWAYS_WITH_SLOT = Source("lambda: 0.0")
# Classes in network.py. Keras's momentum slot contains the rate, which may change; and Keras has no ProximalAdagrad.
_MOMENTUM = "Momentum"
OWN = {_MOMENTUM, _PROXIMAL.keras}
_NOT_IN_KERAS_3 = {"decay", "amsgrad", "clipnorm", "clipvalue", "global_clipnorm"}
_TO_KERAS_2 = "convert to keras2"


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """An optimizer of `tf.keras.optimizers.legacy`, or of OWN; `factor` multiplies the old momentum slot."""

    kind: str
    options: dict[str, Any]
    factor: float = 1.0


def describe(optimizer: Any) -> Optimizer:
    """Returns the equivalent optimizer of Keras."""
    name = type(optimizer).__name__
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        return _of_old(optimizer, name)
    if type(optimizer) is not getattr(tf.keras.optimizers.legacy, name, None) or name not in _LEGACY:
        raise refused(f"the optimizer {name}", f"train with one of {', '.join(_LEGACY)}")
    for option, value in optimizer._hyper.items():
        if tf.is_tensor(value):
            _number(value, name, option)
        schedules, kind = tf.keras.optimizers.schedules, type(value)
        if isinstance(value, schedules.LearningRateSchedule) and kind is not getattr(schedules, kind.__name__, None):
            raise refused(
                f"the {option} of {name}, {kind.__name__},", "use a schedule of tf.keras.optimizers.schedules"
            )
    options = {key: _number(value, name, key) for key, value in optimizer.get_config().items() if key != "name"}
    return Optimizer(name, _without_defaults(options))


def row_of(optimizer: Any) -> Row:
    """Returns the row of an optimizer that `describe` takes."""
    row = _OLD.get(type(optimizer).__name__) or optimizers.row_of(optimizer)
    assert row is not None
    return row


def with_values(optimizer: Optimizer, values: Mapping[str, np.ndarray]) -> Optimizer:
    """Applies the hyperparameters of a checkpoint, with which an Estimator resumes regardless of its code."""
    options = dict(optimizer.options)
    for name, value in values.items():
        known = options.get(name, _DEFAULTS.get(name))
        if known is None or isinstance(known, dict) or np.float32(known) != value:
            options[name] = float(value)
    return dataclasses.replace(optimizer, options=options)


def in_keras_3(optimizer: Optimizer) -> Optimizer:
    """Returns the equivalent class of `parts_keras3`."""
    kind, options = optimizer.kind, dict(optimizer.options)
    if kind == "SGD" and "momentum" in options:
        kind = "KerasMomentum"
    if kind == "RMSprop":
        kind = f"{'Centered' if options.pop('centered', False) else ''}{'' if 'momentum' in options else 'Plain'}{kind}"
        if options.get("momentum") == ALWAYS_WITH_SLOT:
            options["momentum"] = 0.0
    if wrong := _NOT_IN_KERAS_3.intersection(options):
        raise refused(f"{', '.join(sorted(wrong))} of the optimizer {kind} in Keras 3", _TO_KERAS_2)
    return dataclasses.replace(optimizer, kind=kind, options=options)


def _of_old(optimizer: tf.compat.v1.train.Optimizer, name: str) -> Optimizer:
    if name not in _OLD:
        raise refused(f"the optimizer {name}", f"train with one of {', '.join(_OLD)}")
    row = _OLD[name]
    attributes = {"learning_rate": "_lr" if hasattr(optimizer, "_lr") else "_learning_rate"}
    attributes |= {each.name: each.old for each in row.options if hasattr(optimizer, each.old)}
    options = {key: _number(getattr(optimizer, each), name, key) for key, each in attributes.items()}
    kind, factor = row.keras, 1.0
    if kind == "RMSprop" and not options["momentum"]:
        options["momentum"] = ALWAYS_WITH_SLOT
    if kind == "Adagrad":
        # TensorFlow 1 has none; Keras replaces 0 by its default.
        options["epsilon"] = 1e-30
    if kind == _MOMENTUM and not isinstance(options["learning_rate"], dict):
        kind, factor = "SGD", -options["learning_rate"]
    return Optimizer(kind, _without_defaults(options), factor)


def _without_defaults(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in _DEFAULTS or value != _DEFAULTS[key]}


def _number(value: Any, name: str, option: str) -> Any:
    """Returns the value of an option; for a schedule of Keras, its class name and configuration."""
    if isinstance(value, tf.keras.optimizers.schedules.LearningRateSchedule):
        value = tf.keras.optimizers.schedules.serialize(value)
    if isinstance(value, dict) and re.fullmatch(r"\w+", str(value.get("class_name"))):
        return {"class_name": value["class_name"], "config": value["config"]}
    if isinstance(value, (np.floating, np.integer)):
        return value.item()
    if not isinstance(value, (int, float, bool)):
        raise refused(
            f"the {option} of {name}, which is computed in the graph,",
            "pass a number, or a schedule of tf.keras.optimizers.schedules",
        )
    return value
