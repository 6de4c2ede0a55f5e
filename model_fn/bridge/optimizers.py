"""Each optimizer under all of its names: in TensorFlow 1, in a declaration, and in either Keras."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Optional

import tensorflow as tf

# Declared name; class in Keras 3 and, if there is one in tf.compat.v1.train, in Keras 2; and that one.
_CLASSES = """
sgd        SGD       GradientDescentOptimizer
momentum   Momentum  MomentumOptimizer
rmsprop    RMSprop   RMSPropOptimizer
adagrad    Adagrad   AdagradOptimizer
adam       Adam      AdamOptimizer
ftrl       Ftrl      FtrlOptimizer
adamw      AdamW     -
adadelta   Adadelta  -
adamax     Adamax    -
lion       Lion      -
"""
# Declared names, and the slot: TensorFlow 1's, in the order in which it creates them, ours, Keras 2's, Keras 3's.
_SLOTS = """
sgd          -            momentum  momentum     momentum
momentum     momentum     momentum  momentum     velocity
rmsprop      rms          square    rms          velocity
rmsprop      mg           mean      mg           average_gradient
rmsprop      momentum     momentum  momentum     momentum
adagrad      accumulator  square    accumulator  accumulator
ftrl         accum        square    accumulator  accumulator
ftrl         linear       linear    linear       linear
adam,adamw   m            m         m            momentum
adam,adamw   v            v         v            velocity
adam,adamw   -            vhat      vhat         velocity_hat
adadelta     -            square    -            accumulated_grad
adadelta     -            update    -            accumulated_delta_var
adamax,lion  -            m         -            momentum
adamax       -            v         -            norm
"""
# Declared names, the option, and the attribute of TensorFlow 1's class.
_OPTIONS = """
rmsprop,adadelta             rho                                   _decay
sgd,momentum,rmsprop         momentum                              _momentum
sgd,momentum                 nesterov                              _use_nesterov
adam,adamw,adamax,lion       beta_1                                _beta1
adam,adamw,adamax,lion       beta_2                                _beta2
rmsprop,adadelta,adam,adamw,adamax  epsilon                        _epsilon
adam,adamw                   amsgrad                               -
rmsprop                      centered                              _centered
ftrl                         learning_rate_power                   _learning_rate_power
adagrad,ftrl                 initial_accumulator_value             _initial_accumulator_value
ftrl                         l1_regularization_strength            _l1_regularization_strength
ftrl                         l2_regularization_strength            _l2_regularization_strength
ftrl                         l2_shrinkage_regularization_strength  _l2_shrinkage_regularization_strength
ftrl                         beta                                  _beta
"""


class Slot(NamedTuple):
    """The names of a slot; empty if there is none."""

    old: str
    ours: str
    keras2: str
    keras3: str


class Option(NamedTuple):
    """The name of an option, and the attribute of TensorFlow 1's class; empty if there is none."""

    name: str
    old: str


class Row(NamedTuple):
    """An optimizer: its declared name, Keras's class, TensorFlow 1's class, its slots and options."""

    name: str
    keras: str
    old: str
    slots: list[Slot]
    options: list[Option]


def _lines(table: str, name: str) -> list[list[str]]:
    found = [line.split() for line in table.strip().splitlines()]
    return [["" if each == "-" else each for each in rest] for names, *rest in found if name in names.split(",")]


def _row(name: str) -> Row:
    ((keras, old),) = _lines(_CLASSES, name)
    slots, options = [Slot(*each) for each in _lines(_SLOTS, name)], [Option(*each) for each in _lines(_OPTIONS, name)]
    return Row(name, keras, old, slots, options)


# By the declared name.
ROWS = {name: _row(name) for name in (line.split()[0] for line in _CLASSES.strip().splitlines())}


def row_of(optimizer: Any) -> Optional[Row]:
    """Returns the row of an optimizer of TensorFlow 1 or Keras 2; None if there is none."""
    kinds = {each.__name__ for each in type(optimizer).__mro__}
    return next((row for row in ROWS.values() if row.old and {row.old, row.keras} & kinds), None)


def slots_of(optimizer: Any, row: Row, weights: Iterable[tf.Variable]) -> dict[str, tuple[str, Slot]]:
    """Returns the weight, and the slot, by the slot's name in a checkpoint."""
    slots = {own: each for each in row.slots for own in (each.keras2, each.old)}
    found = {}
    for own in optimizer.get_slot_names():
        for weight in weights:
            try:
                variable = optimizer.get_slot(weight, own)
            except KeyError:  # Keras's, for a weight that it does not train
                continue
            if variable is not None:
                found[saved_name(variable)] = saved_name(weight), slots[own]
    return found


def numbers_of(optimizer: Any) -> dict[str, tf.Variable]:
    """Returns the variables with its numbers: options by their names, and others, such as `beta1_power`."""
    held = {**getattr(optimizer, "_hyper", {}), **getattr(optimizer, "_non_slot_dict", {})}
    held["iter"] = getattr(optimizer, "iterations", None)
    return {str(name): each for name, each in held.items() if isinstance(each, tf.Variable)}


def saved_name(variable: tf.Variable) -> str:
    """Returns the name of a variable, or of a part of one, in a checkpoint."""
    part = getattr(variable, "_save_slice_info", None)
    return str(part.full_name if part else variable.op.name)
