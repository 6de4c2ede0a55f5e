"""Reads the constructor arguments of a canned Estimator: its columns, layers, head and optimizers.

An Estimator keeps them only in its model_fn, a closure of the constructor, by the constructor's variable names. All
stacks have tensorflow-estimator 2.15.0, its last release, so the names are fixed; there is no public access.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, Optional

import tensorflow as tf

from tfx_estimator.model_fn.bridge.canned import head as heads
from tfx_estimator.model_fn.bridge.canned.head import MEAN, SUM, WEIGHTED_MEAN, Head
from tfx_estimator.model_fn.bridge.canned.rates import recorded_schedules
from tfx_estimator.model_fn.bridge.canned.refusal import refused
from tfx_estimator.pipeline.base.errors import UserCodeError

_CANNED = "tensorflow_estimator.python.estimator.canned."
_READ = ("dnn", "linear", "dnn_linear_combined")
# Names that stand for the same activation in Keras 2 and Keras 3.
_ACTIVATIONS = ("relu", "elu", "selu", "sigmoid", "tanh", "softplus", "softsign", "swish", "gelu", "linear")
# Kinds of heads, by class name.
_HEADS = {
    "BinaryClassHead": heads.BINARY,
    "_BinaryLogisticHeadWithSigmoidCrossEntropyLoss": heads.BINARY,
    "MultiClassHead": heads.CLASSES,
    "_MultiClassHeadWithSoftmaxCrossEntropyLoss": heads.CLASSES,
    "MultiLabelHead": heads.LABELS,
    "RegressionHead": heads.REGRESSION,
    "_RegressionHeadWithMeanSquaredErrorLoss": heads.REGRESSION,
}
_REDUCTIONS = {"sum": SUM, "weighted_sum": SUM, "weighted_mean": WEIGHTED_MEAN}
_REDUCTIONS |= dict.fromkeys(("auto", "sum_over_batch_size", "weighted_sum_over_batch_size"), MEAN)


@dataclasses.dataclass(frozen=True)
class Canned:
    """A canned Estimator's parts; the activation is its name in Keras, or the function itself."""

    name: str
    is_v2: bool
    head: Head
    deep: tuple[Any, ...]
    hidden_units: tuple[int, ...]
    activation: Any
    dropout: Optional[float]
    batch_norm: bool
    linear: tuple[Any, ...]
    combiner: str
    optimizers: dict[str, Any]


def is_canned(estimator: tf.estimator.Estimator) -> bool:
    """True for one of TensorFlow's canned Estimators, False for a user's model_fn."""
    return str(getattr(_function(estimator), "__module__", "")).startswith(_CANNED)


def read(estimator: tf.estimator.Estimator) -> Canned:
    """Reads a canned Estimator."""
    name = type(estimator).__name__.removesuffix("V2")
    function = _function(estimator)
    found = dict(inspect.getclosurevars(function).nonlocals)
    if function.__module__ not in [_CANNED + each for each in _READ]:
        raise refused(f"the Estimator {name}, which is none of DNN, Linear and DNNLinearCombined,")
    is_v2 = isinstance(found["head"], tf.estimator.Head)
    prefix = "dnn_" if "dnn_hidden_units" in found else ""
    has_linear = bool(prefix) or "hidden_units" not in found
    deep = _columns(found, f"{prefix}feature_columns") if prefix or not has_linear else ()
    linear = _columns(found, "linear_feature_columns" if prefix else "feature_columns") if has_linear else ()
    return Canned(
        name,
        is_v2,
        _head(found["head"]),
        deep,
        tuple(found.get(f"{prefix}hidden_units") or ()),
        activation(found.get(f"{prefix}activation_fn")),
        found.get(f"{prefix}dropout"),
        bool(found.get("batch_norm")),
        linear,
        found.get("linear_sparse_combiner" if prefix else "sparse_combiner", "sum"),
        _optimizers(found, is_v2, deep, linear),
    )


def _function(estimator: tf.estimator.Estimator) -> Any:
    """Returns the innermost model_fn: `tf.estimator.add_metrics` wraps another Estimator's."""
    function = estimator._model_fn
    # A user's model_fn may be any callable.
    while inspect.isfunction(function) and isinstance(
        inner := inspect.getclosurevars(function).nonlocals.get("estimator"), tf.estimator.Estimator
    ):
        function = inner._model_fn
    return function


def _columns(found: Mapping[str, Any], name: str) -> tuple[Any, ...]:
    # The order in which both models sum or concatenate them.
    return tuple(sorted(found[name] or (), key=lambda column: column.name))


def _head(head: Any) -> Head:
    name = type(head).__name__
    if name not in _HEADS:
        raise refused(f"the head {name}")
    if getattr(head, "_inverse_link_fn", None) is not None:
        raise refused(f"inverse_link_fn of the head {name}")
    loss = getattr(head, "_loss_fn", None)
    weight = head._weight_column or ""
    weight = weight if isinstance(weight, str) else weight.key
    words = tuple(getattr(head, "_label_vocabulary", None) or ())
    return Head(_HEADS[name], head.logits_dimension, _REDUCTIONS[str(head._loss_reduction)], weight, words, loss)


def activation(function: Any) -> Any:
    """Returns the name of an activation in Keras, or the function."""
    name = function if isinstance(function, str) or function is None else getattr(function, "__name__", "")
    known = [getattr(place, str(name), None) for place in (tf.nn, tf.keras.activations)]
    if name is None or (name in _ACTIVATIONS and (function == name or function in known)):
        return name
    # An Estimator accepts names of Keras's activations.
    return tf.keras.activations.get(function)


def _optimizers(found: Mapping[str, Any], is_v2: bool, deep: tuple, linear: tuple) -> dict[str, Any]:
    """Returns each optimizer, constructed like in the model_fn: from a name, by a function, or the object itself."""
    from tensorflow_estimator.python.estimator.canned import dnn, dnn_linear_combined
    from tensorflow_estimator.python.estimator.canned import linear as linear_lib
    from tensorflow_estimator.python.estimator.canned import optimizers as lib

    both = "dnn_hidden_units" in found
    given, rates = {}, {}
    if deep:
        given["deep"] = found["dnn_optimizer" if both else "optimizer"]
        # A DNN alone, in version 2, uses Keras's default rates.
        rates["deep"] = dnn_linear_combined._DNN_LEARNING_RATE if both else None if is_v2 else dnn._LEARNING_RATE
    if linear:
        given["linear"] = found["linear_optimizer" if both else "optimizer"]
        rates["linear"] = linear_lib._LEARNING_RATE
        if both:
            rates["linear"] = dnn_linear_combined._linear_learning_rate(len(linear))
    make = lib.get_optimizer_instance_v2 if is_v2 else lib.get_optimizer_instance
    made = {}
    for part, optimizer in given.items():
        if optimizer is None:
            default = linear_lib._get_default_optimizer_v2 if is_v2 else linear_lib._get_default_optimizer
            optimizer = default(linear)
        if getattr(optimizer, "_iterations", None) is not None:
            raise UserCodeError(
                f"the optimizer {type(optimizer).__name__} has trained in this process, to whose graph it belongs",
                expected="an Estimator that has not trained here; or one that is given a function for its optimizer",
                todo="make the Estimator again by the same code, and convert that",
            )
        # A separate graph, for a rate that is a tensor.
        with tf.Graph().as_default() as graph, recorded_schedules(graph) as restore_schedules:
            tf.compat.v1.train.create_global_step()
            made[part] = make(optimizer, learning_rate=rates[part])
            restore_schedules(made[part])
    return made
