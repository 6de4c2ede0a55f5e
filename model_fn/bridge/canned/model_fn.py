"""A model_fn of layers, of feature columns or images, as the source of a Keras model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfx_estimator.model_fn.bridge.canned import calls, reading, writing
from tfx_estimator.model_fn.bridge.canned.calls import Call, Called
from tfx_estimator.model_fn.bridge.canned.columns import Columns, clean
from tfx_estimator.model_fn.bridge.canned.head import BINARY, CLASSES, MEAN, Head
from tfx_estimator.model_fn.bridge.canned.optimizers import Optimizer
from tfx_estimator.model_fn.bridge.canned.refusal import refused
from tfx_estimator.model_fn.bridge.canned.text import Source, indented, literal
from tfx_estimator.model_fn.bridge.canned.text import call as written
from tfx_estimator.model_fn.bridge.canned.tracing import lines_between
from tfx_estimator.model_fn.bridge.canned.writing import KERAS
from tfx_estimator.model_fn.bridge.kept.reach import ancestors
from tfx_estimator.model_fn.bridge.optimizers import saved_name


def head(called: Called) -> Head:
    """Returns the kind of the logits: classes are compared by the largest if a softmax is in the loss."""
    kinds = [each.op.type for each in calls.reached([called.training.spec.loss], {called.logits.ref()})]
    kind = CLASSES if any("Softmax" in each for each in kinds) else BINARY
    return Head(kind, called.logits.shape[-1] if called.logits.shape.rank > 1 else 1, MEAN, called.weight or "", ())


def write(
    called: Called, features: Mapping[str, Any], optimizers: Mapping[str, Optimizer], is_keras_3: bool = False
) -> writing.Written:
    """Writes the source."""
    columns = Columns(features)
    logits = _Network(called, columns, is_keras_3).value(called.logits)
    shape = ", ".join(["batch", *map(str, called.logits.shape[1:])])
    output = f"the model_fn's {called.logits.op.name}, [{shape}]"
    loss, reads = _loss(called, columns)
    origin = "the model_fn of an Estimator"
    network = writing.Network("a network", origin, "model_fn", columns, logits, head(called), loss, output, reads)
    return writing.compose(network, optimizers, is_keras_3)


def _loss(called: Called, columns: Columns) -> tuple[str, bool]:
    """Writes the loss; returns whether it reads weights, as a regularizer's does."""
    names = {called.labels.ref(): "labels", called.logits.ref(): "logits"}
    names |= {called.features[called.weight].ref(): "weights"} if called.weight else {}
    read = {}
    for each in calls.reached([called.training.spec.loss], {called.logits.ref()}):
        if variable := calls.variable(each):
            if not (place := columns.weights.get(variable.name)):
                raise refused(f"a loss that reads the variable {variable.name}, which is of no layer,")
            names[each.ref()] = read[place] = clean(place)
    lines = lines_between("the loss of the model_fn", names, called.training.spec.loss)
    lines = [f"{name} = tf.convert_to_tensor(variables[{literal(place)}])" for place, name in read.items()] + lines
    given = "labels, logits, weights=None" + ", variables=None" * bool(read)
    lines = ['"""Returns the loss of a batch, like the model_fn."""', *lines]
    return f"def loss({given}):\n{indented(lines)}\n", bool(read)


# Options of layers that are not written.
_LEFT_OUT = [f"{each}_constraint" for each in ("kernel", "bias", "beta", "gamma")]
_LEFT_OUT += ["noise_shape", "renorm", "virtual_batch_size", "adjustment"]


class _Network:
    """Writes the layers that a tensor needs; each is written once."""

    def __init__(self, called: Called, columns: Columns, is_keras_3: bool) -> None:
        self._called, self._is_keras_3 = called, is_keras_3
        self._columns = columns
        self._features = {each.ref(): name for name, each in called.features.items()}
        self._made: dict[Any, str] = {}

    def value(self, tensor: tf.Tensor) -> str:
        """Returns the expression of a tensor's values."""
        if tensor.ref() not in self._made:
            self._made[tensor.ref()] = self._write(tensor)
        return self._made[tensor.ref()]

    def _write(self, tensor: tf.Tensor) -> str:
        call = self._called.calls.get(tensor.ref())
        if call is None:
            return self._feature(tensor) if tensor.ref() in self._features else self._computed(tensor)
        if call.layer is None:
            return self._joined(call)
        kind = next(each.__name__ for each in type(call.layer).__mro__ if each.__name__ in _WRITERS)
        return _WRITERS[kind](self, call)

    def _feature(self, tensor: tf.Tensor) -> str:
        name, shape = self._features[tensor.ref()], tensor.shape
        # As a float32 of Keras's input: larger integers may not be equal.
        is_number = tensor.dtype.is_floating or (tensor.dtype.is_integer and tensor.dtype.size <= 2)
        if not is_number or shape.rank is None or None in shape[1:]:
            raise refused(
                f"the feature {name!r} of {tensor.dtype.name} and shape {shape}, which is taken without a column,",
                "take it by a column of tf.feature_column; or keep all of it, by --estimator and --to kept",
            )
        value = self._columns.input(name, "float32", shape[1:].num_elements())
        if shape.rank == 2 and tensor.dtype == tf.float32:
            return value
        lines = [f"return tf.reshape(value, {[-1, *shape[1:]]})"]
        if tensor.dtype != tf.float32:
            lines.insert(0, f"value = tf.cast(value, tf.{tensor.dtype.name})")
        return self._function("shaped", f"shaped_{clean(name)}", ["value"], lines, [value])

    def _function(self, function: str, name: str, arguments: list[str], lines: list[str], values: list[str]) -> str:
        """Writes a function, and a layer that calls it on values."""
        function, name = self._columns.variable(function), self._columns.layer(name)
        self._columns.function(function, arguments, lines)
        self._columns.parts.add("Computed")
        made = written("Computed", Source(function), name=name)
        inputs = values[0] if len(values) == 1 else f"[{', '.join(values)}]"
        return self._columns.line(name, f"{made}({inputs})")

    def _joined(self, call: Call) -> str:
        """Writes the columns of an input_layer."""
        values = []
        for column, variables in call.variables.items():
            names = [saved_name(each) for each in variables]
            is_trained = not self._called.trained.isdisjoint(names)
            values.append(self._columns.dense(column, f"deep_{clean(column.name)}", "".join(names[:1]), is_trained))
        self._check_features(call)
        if len(values) == 1:
            return self._columns.line("input_layer", values[0])
        name = self._columns.layer("input_layer")
        made = written(f"{KERAS}.Concatenate", name=name)
        self._columns.lines += [f"{(own := self._columns.variable(name))} = {made}(", *writing.listed(values), ")"]
        return own

    def _check_features(self, call: Call) -> None:
        for key in self._columns.inputs.keys() & call.given.keys():
            if call.given[key] is not self._called.training.given[0].get(key):
                raise refused(f"the feature {key!r}, which the model_fn computes,", "compute it in the input_fn")

    def _linear(self, call: Call) -> str:
        """Writes a linear_model."""
        variables = dict(call.variables)
        bias = saved_name(variables.pop("bias")[0])
        inner = next(iter(call.layer._column_layers.values()))
        given = inner._units, inner._sparse_combiner, bias.rpartition("/")[0]
        columns = sorted(variables, key=lambda column: column.name)
        first, *more = self._columns.total([self._columns.linear(each, *given) for each in columns], bias)
        self._check_features(call)
        self._columns.lines += [f"{(own := self._columns.variable('linear'))} = {first}", *more]
        return own

    def _computed(self, tensor: tf.Tensor) -> str:
        """Writes the operations between layers as a function of their outputs."""
        stops = self._called.calls.keys() | self._features.keys()
        given = [each for each in calls.reached([tensor], stops) if each.ref() in stops]
        names = ["value"] if len(given) == 1 else [f"value_{index}" for index in range(1, len(given) + 1)]
        # Before what they need: it names a variable.
        lines = lines_between("the model_fn", {each.ref(): name for name, each in zip(names, given)}, tensor)
        values = [self.value(each) for each in given]
        kind = clean(tensor.op.name.rpartition("/")[2]).strip("_").lower()
        return self._function(f"compute_{kind}", f"computed_{kind}", names, lines, values)

    def _layer(self, call: Call, kind: str, *args: Any, place: str = f"{KERAS}.", **options: Any) -> str:
        value, layer = self.value(call.given), call.layer
        for option in _LEFT_OUT:
            if getattr(layer, option, None):
                raise refused(f"the {option} of the layer {layer.name}")
        variables = {each.name.rpartition("/")[2].partition(":")[0]: saved_name(each) for each in layer.weights}
        if used := self._columns.weights.keys() & variables.values():
            raise refused(f"the layer of the variable {min(used)}, which is used twice,")
        own = min(variables.values()).rpartition("/")[0].replace("/", "_") if variables else layer.name
        name = self._columns.layer(clean(own))
        if self._called.trained.isdisjoint(variables.values()) and variables:
            options["trainable"] = False
        self._columns.weights |= {saved: f"{name}/{each}" for each, saved in variables.items()}
        return self._columns.line(name, f"{written(f'{place}{kind}', *args, **options, name=name)}({value})")

    def _dense(self, call: Call) -> str:
        return self._of_kernel(call, calls.DENSE, call.layer.units)

    def _conv(self, call: Call) -> str:
        return self._of_kernel(call, calls.CONV, call.layer.filters, call.layer.kernel_size, **_form(call.layer))

    def _pool(self, call: Call) -> str:
        layer, options = call.layer, {"strides": call.layer.strides, **_form(call.layer)}
        # The default of a pooling.
        if layer.strides == layer.pool_size:
            del options["strides"]
        return self._layer(call, type(layer).__name__, layer.pool_size, **options)

    def _flatten(self, call: Call) -> str:
        return self._layer(call, calls.FLATTEN)

    def _of_kernel(self, call: Call, kind: str, *args: Any, **options: Any) -> str:
        # What it needs is written before a comment on it.
        self.value(call.given)
        activation = writing.activation_of(reading.activation(call.layer.activation), self._columns)
        options |= {} if activation in (None, "linear") else {"activation": activation}
        options |= {} if call.layer.use_bias else {"use_bias": False}
        for name in ("kernel_initializer", "bias_initializer"):
            given = getattr(call.layer, name)
            if given is None or type(given).__name__ in ("GlorotUniform", "Zeros"):
                continue
            if source := self._columns.initializer(given):
                options[name] = source
            else:
                self._columns.lines.append(f"# Keras has no such {name} as this had: pass one to train from scratch.")
        return self._layer(call, kind, *args, **options)

    def _dropout(self, call: Call) -> str:
        return self._layer(call, calls.DROPOUT, call.layer.rate) if call.is_training else self.value(call.given)

    def _norm(self, call: Call) -> str:
        layer, training = call.layer, self._called.training
        if not call.is_training:
            raise refused(f"the layer {layer.name}, whose training is False in training,")
        # Its averages move only if the train_op updates them.
        reached = ancestors([training.graph.as_graph_element(training.spec.train_op)])
        moved = {each.inputs[0].op for each in reached if each.type.startswith("Assign")}
        momentum = layer.momentum
        if layer.moving_mean.op not in moved:
            momentum = 1.0
            self.value(call.given)
            self._columns.lines.append("# The model_fn trained without its update_ops: these averages never move.")
        options: dict[str, Any] = {name: False for name in ("center", "scale") if not getattr(layer, name)}
        if self._is_keras_3 and call.given.shape.rank == 4:
            self._columns.parts.add(calls.NORM)
            options["place"] = ""
        return self._layer(call, calls.NORM, momentum=momentum, epsilon=layer.epsilon, **options)


def _form(layer: Any) -> dict[str, Any]:
    """Returns what a convolution or a pooling has in other ways than most."""
    usual = {
        "strides": (1, 1),
        "padding": "valid",
        "dilation_rate": (1, 1),
        "groups": 1,
        "data_format": "channels_last",
    }
    return {name: value for name, each in usual.items() if (value := getattr(layer, name, each)) != each}


_WRITERS = {calls.DENSE: _Network._dense, calls.DROPOUT: _Network._dropout, calls.NORM: _Network._norm}
_WRITERS |= {"_LinearModel": _Network._linear, calls.CONV: _Network._conv, calls.FLATTEN: _Network._flatten}
_WRITERS |= dict.fromkeys(calls.POOLS, _Network._pool)
