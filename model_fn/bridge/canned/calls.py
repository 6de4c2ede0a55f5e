"""What a model_fn of feature columns and layers calls, and what a model in its place returns."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Optional
from unittest import mock

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.bridge import session
from tfx_estimator.model_fn.bridge.canned.rates import recorded_schedules
from tfx_estimator.model_fn.bridge.canned.refusal import refused
from tfx_estimator.model_fn.bridge.canned.tracing import VARIABLES
from tfx_estimator.model_fn.bridge.kept.inputs import placeholders
from tfx_estimator.model_fn.bridge.optimizers import saved_name
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys

DENSE, DROPOUT, NORM, CONV, FLATTEN = "Dense", "Dropout", "BatchNormalization", "Conv2D", "Flatten"
POOLS = ("MaxPooling2D", "AveragePooling2D")
# The scopes of what tf.gradients and a tape create.
_GRADIENTS = re.compile(r"(?:^|/)(gradients(?:_\d+)?|gradient_tape)/")
# By an output.
Calls = dict[Any, "Call"]


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a layer, with its tensor; or of columns, with the features and each column's variables, in order."""

    given: Any
    layer: Any = None
    is_training: bool = False
    variables: Mapping[Any, Sequence[Any]] = dataclasses.field(default_factory=dict)

    def weights(self) -> list[Any]:
        """Returns all variables of the call that are not cut into parts."""
        found = self.layer.weights if self.layer else itertools.chain(*self.variables.values())
        return [each for each in found if hasattr(each, "op")]


@dataclasses.dataclass(frozen=True)
class Called:
    """A model_fn after its call for training.

    Args:
        optimizer: As the model_fn has made it; a rate of a schedule is that.
        features: The placeholders of dense features, by name.
        logits: What the model returns; in most model_fns the logits.
        weight: The feature that the loss reads; None if there is none.
    """

    training: session.Training
    optimizer: Any
    calls: Calls
    trained: frozenset[str]
    features: Mapping[str, tf.Tensor]
    labels: tf.Tensor
    logits: tf.Tensor
    weight: Optional[str]

    def scores(self, spec: Any) -> tuple[str, tf.Tensor]:
        """Returns the logits of the default graph, in which the model_fn was called to predict."""
        try:
            return session.LOGITS, tf.compat.v1.get_default_graph().get_tensor_by_name(self.logits.name)
        except KeyError as error:
            raise refused("a model_fn that predicts by other layers than it trains") from error


def call(estimator: tf.estimator.Estimator, types: Any) -> Called:
    """Calls a model_fn for training; `types` are those of features and labels."""
    found: list[Any] = []

    @contextlib.contextmanager
    def watch(graph: tf.Graph) -> Iterator[None]:
        with recorded() as calls, recorded_schedules(graph) as restore:
            found.extend((calls, restore))
            yield

    training = session.training(estimator, types, watch)
    calls, restore = found
    optimizers = [each for applied in training.applied for each in applied.optimizers]
    if len(optimizers) != 1:
        kinds = " and ".join(f"{type(each).__module__}.{type(each).__name__}" for each in optimizers) or "none"
        raise refused(f"a model_fn that trains by {kinds}, in place of one optimizer,")
    for each in training.applied[0].gradients:
        op = (each.values if isinstance(each, tf.IndexedSlices) else each).op
        if not _GRADIENTS.search(op.name):
            raise refused(f"a gradient that the model_fn changes before it applies it, by {op.name},")
    # One of Keras has variables by now: `numbers_of` finds them in the old one.
    optimizer = copy.copy(optimizers[0])
    if hyper := getattr(optimizer, "_hyper", None):
        optimizer._hyper = {
            name: _first(each) if isinstance(each, tf.Variable) else each for name, each in hyper.items()
        }
    restore(optimizer)
    features, labels = training.given
    if not isinstance(features, dict) or not isinstance(labels, tf.Tensor):
        raise refused("an input_fn without a dict of features and a tensor of labels")
    dense = {name: each for name, each in features.items() if isinstance(each, tf.Tensor)}
    loss = training.spec.loss
    logits = _output(loss, labels, calls, _predictions(estimator, types))
    others = {each.ref() for each in reached([loss], {logits.ref()})}
    weights = [name for name, each in dense.items() if each.ref() in others]
    if len(weights) > 1:
        raise refused(f"a loss of several features, {' and '.join(weights)},")
    trained = frozenset(saved_name(each) for each in training.applied[0].trained)
    return Called(training, optimizer, calls, trained, dense, labels, logits, *(weights or [None]))


def _first(variable: tf.Variable) -> float:
    """Returns the shortest decimal that equals a variable's initial value."""
    return float(str(np.float32(tf.get_static_value(variable._initial_value))))


def reached(roots: Sequence[tf.Tensor], stops: Collection[Any]) -> list[tf.Tensor]:
    """Returns tensors, and all that they are computed from, up to those with these references."""
    left, found = list(roots), dict[Any, tf.Tensor]()
    while left:
        tensor = left.pop()
        if tensor.ref() not in found:
            found[tensor.ref()] = tensor
            left += [] if tensor.ref() in stops else reversed(tensor.op.inputs)
    return list(found.values())


def variable(tensor: tf.Tensor) -> Optional[tf.Operation]:
    """Returns the variable whose value the tensor is."""
    if tensor.op.type == "ReadVariableOp":
        return tensor.op.inputs[0].op
    return tensor.op if tensor.op.type in VARIABLES and tensor.dtype != tf.resource else None


def _predictions(estimator: tf.estimator.Estimator, types: Any) -> list[tf.Tensor]:
    with tf.Graph().as_default():
        tf.compat.v1.train.create_global_step()
        (features, _), _ = placeholders(types)
        spec = estimator.model_fn(features, None, ModeKeys.PREDICT, estimator.config)
        return [each for each in tf.nest.flatten(spec.predictions) if isinstance(each, tf.Tensor)]


def _output(loss: tf.Tensor, labels: tf.Tensor, calls: Calls, predictions: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the last tensor by which alone the layers reach the loss, and most of the predictions."""
    order = {op: index for index, op in enumerate(loss.graph.get_operations())}
    known = sorted(reached([loss], calls), key=lambda each: order[each.op])
    weights = {variable.op for each in calls.values() for variable in each.weights()}
    read = {each.op for each in known if each.op.type in VARIABLES} - weights
    found = []
    for each in known:
        others = [other for other in reached([loss], {each.ref()}) if other is not each]
        # A regularizer reads weights of layers.
        is_only = not any(other.ref() in calls or other.op in read for other in others)
        is_of_labels = labels.ref() in {before.ref() for before in reached([each], calls)}
        is_of_examples = each.shape.rank == 2 or (each.shape.rank == 1 and each.shape[0] == labels.shape[0])
        if is_only and not is_of_labels and is_of_examples and each.op.type != "Identity":
            found.append(each)
    if found:
        served = [sum(_is_of(each, named.name) for each in predictions) for named in found]
        most = max(served)
        return found[0] if not most else [each for each, count in zip(found, served) if count == most][-1]
    others = [each.op.name for each in known if each.op in read]
    which = f"reads the variable {others[0]} beside its layers" if others else "is of several outputs of layers"
    raise refused(f"a model_fn whose loss {which}")


def _is_of(prediction: tf.Tensor, name: str) -> bool:
    """Returns whether a prediction is computed from the tensor of this name, and from no variable otherwise."""
    try:
        tensor = prediction.graph.get_tensor_by_name(name)
    except KeyError:
        return False
    found = reached([prediction], {tensor.ref()})
    return any(each is tensor for each in found) and not any(
        each.op.type in VARIABLES for each in found if each is not tensor
    )


@contextlib.contextmanager
def recorded() -> Iterator[Calls]:
    """Records the calls of columns, of known layers and of `tf.nn.dropout` in this context."""
    from tensorflow.python.feature_column import feature_column

    found: Calls = {}
    places = (tf.compat.v1.layers, tf.keras.layers, tf.compat.v1.keras.layers)
    kinds = {getattr(place, name) for place in places for name in (DENSE, DROPOUT, NORM, CONV, FLATTEN, *POOLS)}
    of_columns = {place.DenseFeatures for place in places[1:]}
    joined, linear = feature_column._internal_input_layer, feature_column._LinearModel

    def recording(made: Any) -> Any:
        def called(layer: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            result = made(layer, inputs, *args, **kwargs)
            if type(layer) in kinds and isinstance(result, tf.Tensor):
                is_training = kwargs.get("training", args[0] if args else None)
                if tf.is_tensor(is_training):
                    is_training = tf.get_static_value(is_training)
                found[result.ref()] = Call(inputs, layer, bool(is_training))
            elif type(layer) in of_columns:
                variables = layer._state_manager._cols_to_vars_map
                columns = {each: [*variables[each].values()] for each in layer._feature_columns}
                found[result.ref()] = Call(dict(inputs), variables=columns)
            elif type(layer) is linear:
                found[result.ref()] = Call(dict(inputs), layer, variables=layer.cols_to_vars())
            return result

        return called

    def joining(features: Any, *args: Any, cols_to_vars: Any = None, **kwargs: Any) -> tf.Tensor:
        variables = {} if cols_to_vars is None else cols_to_vars
        result = joined(features, *args, cols_to_vars=variables, **kwargs)
        found[result.ref()] = Call(dict(features), variables=variables)
        return result

    def dropping(made: Any) -> Any:
        def dropped(x: Any, *args: Any, **kwargs: Any) -> Any:
            result = made(x, *args, **kwargs)
            given = inspect.signature(made).bind(x, *args, **kwargs).arguments
            rate = given["rate"] if given.get("rate") is not None else 1 - given["keep_prob"]
            rate = tf.get_static_value(rate) if tf.is_tensor(rate) else rate
            if result is not x and rate is not None and given.get("noise_shape") is None:
                # A float32, as in the graph.
                found[result.ref()] = Call(x, tf.keras.layers.Dropout(float(str(np.float32(rate)))), True)
            return result

        return dropped

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(feature_column, joined.__name__, joining))
        for place in (tf.nn, tf.compat.v1.nn):
            stack.enter_context(mock.patch.object(place, "dropout", dropping(place.dropout)))
        for kind in {
            base for each in (*kinds, *of_columns, linear) for base in each.__mro__ if "__call__" in vars(base)
        }:
            stack.enter_context(mock.patch.object(kind, "__call__", recording(vars(kind)["__call__"])))
        yield found
