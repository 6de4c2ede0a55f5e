"""Each optimizer under all of its names: in TensorFlow 1, in a declaration, and in either Keras."""

from __future__ import annotations

from typing import NamedTuple

# Declared name; class in Keras 3 and, if it has one, in Keras 2 and (with Optimizer) in tf.compat.v1.train; the
# operations of TensorFlow that update a weight.
_CLASSES = """
sgd        SGD       GradientDescent  GradientDescent KerasMomentum
momentum   Momentum  Momentum         Momentum
rmsprop    RMSprop   RMSProp          RMSProp CenteredRMSProp
adagrad    Adagrad   Adagrad          Adagrad AdagradV2
adam       Adam      Adam             Adam AdamWithAmsgrad
ftrl       Ftrl      Ftrl             Ftrl FtrlV2
adamw      AdamW     -
adadelta   Adadelta  -
adamax     Adamax    -
lion       Lion      -
"""
# Declared names, the operation's input, and the slot: ours, Keras 2's, Keras 3's; as TensorFlow 1 creates them.
_SLOTS = """
sgd            accum   momentum  momentum     momentum
momentum       accum   momentum  momentum     velocity
rmsprop        ms      square    rms          velocity
rmsprop        mg      mean      mg           average_gradient
rmsprop        mom     momentum  momentum     momentum
adagrad,ftrl   accum   square    accumulator  accumulator
ftrl           linear  linear    linear       linear
adam,adamw     m       m         m            momentum
adam,adamw     v       v         v            velocity
adam,adamw     vhat    vhat      vhat         velocity_hat
adadelta       -       square    -            accumulated_grad
adadelta       -       update    -            accumulated_delta_var
adamax,lion    -       m         -            momentum
adamax         -       v         -            norm
"""
# Declared names, the option, the attribute of TensorFlow 1's class, and the input or attribute of the operation.
_OPTIONS = """
rmsprop,adadelta            rho                         _decay                       rho
sgd,momentum,rmsprop        momentum                    _momentum                    momentum
sgd,momentum                nesterov                    _use_nesterov                use_nesterov
adam,adamw,adamax,lion      beta_1                      _beta1                       beta1
adam,adamw,adamax,lion      beta_2                      _beta2                       beta2
rmsprop,adam,adamw          epsilon                     _epsilon                     epsilon
adadelta,adamax             epsilon                     -                            -
adam,adamw                  amsgrad                     -                            -
rmsprop                     centered                    _centered                    -
ftrl                        learning_rate_power         _learning_rate_power         lr_power
adagrad,ftrl                initial_accumulator_value   _initial_accumulator_value   -
ftrl                        l1_regularization_strength  _l1_regularization_strength  l1
ftrl                        l2_regularization_strength  _l2_regularization_strength  l2
ftrl  l2_shrinkage_regularization_strength  _l2_shrinkage_regularization_strength  l2_shrinkage
ftrl                        beta                        _beta                        -
"""
# Options that an operation implies.
IMPLIED = {"CenteredRMSProp": {"centered": True}, "AdamWithAmsgrad": {"amsgrad": True}}
# Inputs of operations that must have the value that the declared optimizer implies: the declared Adagrad has no
# epsilon, and Keras's default vanishes in the rounding of the square root.
FIXED = {"AdagradV2": {"epsilon": 1e-7}}


class Slot(NamedTuple):
    """The names of a slot; empty if there is none."""

    op: str
    ours: str
    keras2: str
    keras3: str


class Option(NamedTuple):
    """The names of an option; empty if there is none."""

    name: str
    old: str
    op: str


class Row(NamedTuple):
    """An optimizer: Keras's class, TensorFlow 1's class, and its operations, slots and options."""

    keras: str
    old: str
    ops: tuple[str, ...]
    slots: list[Slot]
    options: list[Option]


def _lines(table: str, name: str) -> list[list[str]]:
    found = [line.split() for line in table.strip().splitlines()]
    return [["" if each == "-" else each for each in rest] for names, *rest in found if name in names.split(",")]


def _row(name: str) -> Row:
    ((keras, old, *ops),) = _lines(_CLASSES, name)
    slots, options = [Slot(*each) for each in _lines(_SLOTS, name)], [Option(*each) for each in _lines(_OPTIONS, name)]
    return Row(keras, f"{old}Optimizer" if old else "", tuple(ops), slots, options)


# By the declared name.
ROWS = {name: _row(name) for name in (line.split()[0] for line in _CLASSES.strip().splitlines())}
