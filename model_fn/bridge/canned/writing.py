"""Writes network.py: the source of a Keras model equivalent to an Estimator."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfx_estimator.model_fn.bridge.canned import parts, parts_keras3
from tfx_estimator.model_fn.bridge.canned.columns import Columns, Input
from tfx_estimator.model_fn.bridge.canned.head import BINARY, CLASSES, LABELS, REGRESSION, WEIGHTED_MEAN, Head
from tfx_estimator.model_fn.bridge.canned.optimizers import ALWAYS_WITH_SLOT, OWN, Optimizer
from tfx_estimator.model_fn.bridge.canned.reading import Canned
from tfx_estimator.model_fn.bridge.canned.text import Source, call, indented, literal
from tfx_estimator.model_fn.bridge.canned.tracing import lines_of

KERAS = "tf.keras.layers"
# Parts that another one needs.
_NEEDS = {
    "HashBucket": ("is_absent",),
    "Identity": ("is_absent",),
    "Crossed": ("is_absent", "sparse"),
    "Bag": ("sparse",),
    "Normalized": ("Computed",),
}
_HEADER = '''\
"""{title}

It was {origin}. This file is yours to change.
It needs only TensorFlow, {keras}.

    import network

    model = network.network()
    network.restore(model)  # the Estimator's weights, slots and step, from weights.npz next to this file
    model.fit(dataset.map(network.prepare))  # dataset: the result of the Estimator's input_fn

The model returns {output}. To train from scratch, call model.compile() instead of restore.
"""

import os

import numpy as np
import tensorflow as tf

HERE = os.path.dirname(os.path.abspath(__file__))
{absent}# Each feature's type and number of values in an example; None is any number.
INPUTS = {inputs}
'''
# Parts that handle missing values, and the constants that they use.
_OF_CATEGORIES = ("HashBucket", "WordIds", "Identity", "Crossed")
_ABSENT = """\
# The id of a missing value; -1 is that of a word outside of the vocabulary.
ABSENT = -2
# Missing values in categorical inputs.
NO_WORD, NO_NUMBER = "\\0", tf.int64.min
"""
_KERAS_2 = "with Keras 2: from TensorFlow 2.16 on, tf_keras and TF_USE_LEGACY_KERAS=1 in the environment"
_KERAS_3 = "from 2.16 on, with its Keras 3"


@dataclasses.dataclass(frozen=True)
class Written:
    """A written network; `weights` has each weight's place, by its name in the checkpoint."""

    text: str
    files: dict[str, list[str]]
    weights: dict[str, str]
    inputs: dict[str, Input]


@dataclasses.dataclass(frozen=True)
class Network:
    """A network in parts of source: what it is and was, its name, its lines, its output's expression and shape."""

    title: str
    origin: str
    name: str
    columns: Columns
    logits: str
    head: Head
    loss: str
    output: str
    loss_reads_weights: bool = False


def write(
    canned: Canned, features: Mapping[str, Any], optimizers: Mapping[str, Optimizer], is_keras_3: bool = False
) -> Written:
    """Writes the source."""
    columns = Columns(features, canned.is_v2)
    lines, logits = [], []
    if canned.deep:
        lines += _deep(canned, columns)
        logits.append("deep")
    if canned.linear:
        added = [columns.linear(column, canned.head.units, canned.combiner) for column in canned.linear]
        first, *more = columns.total(added, "linear/linear_model/bias_weights")
        lines += [f"linear = {first}", *more]
        logits.append("linear")
    both = logits[0]
    if len(logits) > 1:
        both = f"{call(f'{KERAS}.Add', name=columns.layer('logits'))}([{', '.join(logits)}])"
    columns.lines += lines
    made = [f"a network of {' and '.join(map(str, canned.hidden_units))} units"] if canned.deep else []
    made += ["a linear model"] if canned.linear else []
    origin = f"a canned Estimator, {canned.name}"
    output = f"logits, [batch, {canned.head.units}]"
    network = Network(" and ".join(made), origin, canned.name, columns, both, canned.head, _loss(canned.head), output)
    return compose(network, optimizers, is_keras_3)


def compose(network: Network, optimizers: Mapping[str, Optimizer], is_keras_3: bool) -> Written:
    """Writes the source of a network, with its optimizers by part."""
    columns, head = network.columns, network.head
    # Layer names allow fewer characters than feature names, and an input must not have another layer's name.
    can_name = all(re.fullmatch(r"[A-Za-z0-9.][\w.\-]*", name) for name in columns.inputs)
    named = ", name=name" if can_name and columns.layers.isdisjoint(columns.inputs) else ""
    lines = [
        "inputs = {",
        f"    name: tf.keras.Input((width,), dtype=dtype{named}) for name, (dtype, width) in INPUTS.items()",
        "}",
        *columns.lines,
        f"return EstimatorModel(inputs=inputs, outputs={network.logits}, name={literal(_snake(network.name))})",
    ]
    own = (
        ({each.kind for each in optimizers.values()} | columns.parts) & vars(parts_keras3).keys()
        if is_keras_3
        else set()
    )
    if not is_keras_3:
        columns.parts |= OWN & {each.kind for each in optimizers.values()}
    body = [
        _header(network, _KERAS_3 if is_keras_3 else _KERAS_2),
        *_parts(columns.parts),
        *columns.functions,
        f'def network():\n    """Returns the model, with initial weights."""\n{indented(lines)}\n',
        _prepare(head),
        network.loss,
        *(inspect.getsource(kind) for kind in vars(parts_keras3).values() if _is_of(own, kind)),
        _optimizers(optimizers, "" if is_keras_3 else "tf.keras.optimizers.legacy."),
        _dense(columns.inputs),
        _model(network, is_keras_3),
        inspect.getsource(parts.weights_of),
        inspect.getsource((parts_keras3 if is_keras_3 else parts).places),
        inspect.getsource(parts.restore),
    ]
    return Written("\n\n".join(body), columns.files, columns.weights, columns.inputs)


def _dense(inputs: Mapping[str, Input]) -> str:
    """Returns the source that converts a feature to an input."""
    if any(each.dtype != "float32" for each in inputs.values()):
        return inspect.getsource(parts.dense)
    return inspect.getsource(parts.dense_numbers).replace("dense_numbers", "dense")


def _model(network: Network, is_keras_3: bool) -> str:
    """Returns the model's source; for Keras 3, and for a sum, without the division of the loss by replicas."""
    source = inspect.getsource(parts.EstimatorModel)
    if network.loss_reads_weights:
        source = source.replace("loss(labels, logits, weights)", "loss(labels, logits, weights, weights_of(self))")
    if is_keras_3 or network.head.is_sum:
        source = re.sub(r" *# Under a strategy.*\n *part = .*\n", "", source).replace(
            "gradient(part,", "gradient(value,"
        )
    return source


def _is_of(names: set[str], kind: Any) -> bool:
    """True for the named optimizers of Keras 3 and their bases."""
    return isinstance(kind, type) and any(issubclass(getattr(parts_keras3, name), kind) for name in names)


def _header(network: Network, keras: str) -> str:
    columns, title = network.columns, f"{network.title}, in Keras."
    shapes = {name: (each.dtype, each.width) for name, each in sorted(columns.inputs.items())}
    return (
        _HEADER.format(
            title=title[0].upper() + title[1:],
            origin=network.origin,
            keras=keras,
            output=network.output,
            absent=_ABSENT if columns.parts.intersection(_OF_CATEGORIES) else "",
            inputs=_table(shapes),
        ).rstrip("\n")
        + "\n"
    )


def _table(values: Mapping[str, Any]) -> str:
    rows = [f"    {literal(key)}: {literal(value)}," for key, value in values.items()]
    return "\n".join(["{", *rows, "}"])


def _parts(names: set[str]) -> list[str]:
    """Returns the source of parts, in the order of the module."""
    wanted = names.union(*(_NEEDS.get(name, ()) for name in names))
    return [inspect.getsource(value) for name, value in vars(parts).items() if name in wanted]


def _deep(canned: Canned, columns: Columns) -> list[str]:
    """Returns the lines of the network, and adds the places of its weights."""
    joined = [columns.deep(column) for column in canned.deep]
    lines, activation = [f"deep = {joined[0]}"], activation_of(canned.activation, columns)
    if len(joined) > 1:
        lines = [f"deep = {call(f'{KERAS}.Concatenate', name=columns.layer('deep_input'))}(", *listed(joined), ")"]
    for index, units in enumerate(canned.hidden_units):
        name = f"hiddenlayer_{index}"
        own = columns.layer(f"deep_{name}")
        lines.append(f"deep = {call(f'{KERAS}.Dense', units, activation, name=own)}(deep)")
        columns.weights |= {f"dnn/{name}/{each}": f"{own}/{each}" for each in ("kernel", "bias")}
        if canned.dropout is not None:
            own = columns.layer(f"deep_dropout_{index}")
            lines.append(f"deep = {call(f'{KERAS}.Dropout', canned.dropout, name=own)}(deep)")
        if canned.batch_norm:
            norm = f"batchnorm_{index}"
            own = columns.layer(f"deep_{norm}")
            lines.append(f"deep = {call(f'{KERAS}.BatchNormalization', momentum=0.999, name=own)}(deep)")
            names = ("gamma", "beta", "moving_mean", "moving_variance")
            columns.weights |= {f"dnn/{name}/{norm}/{each}": f"{own}/{each}" for each in names}
    own = columns.layer("deep_logits")
    columns.weights |= {f"dnn/logits/{each}": f"{own}/{each}" for each in ("kernel", "bias")}
    return [*lines, f"deep = {call(f'{KERAS}.Dense', canned.head.units, name=own)}(deep)"]


def activation_of(activation: Any, columns: Columns) -> Any:
    """Returns the argument for an activation, and writes a function that Keras does not have."""
    if not callable(activation):
        return activation
    name = columns.variable("activation")
    columns.function(name, ["value"], lines_of("the activation_fn", activation, {"value": tf.TensorSpec([None, None])}))
    return Source(name)


def listed(values: list[str]) -> list[str]:
    """Returns the lines of a call's argument, a list of these."""
    return ["    [", *(f"        {each}," for each in values), "    ]"]


def _prepare(head: Head) -> str:
    """Returns the source that converts batches of the input_fn for Keras."""
    lines = ["inputs = {name: dense(features[name], *each) for name, each in INPUTS.items()}"]
    lines += ["if labels is None:", "    return inputs"]
    lines += _numbered(head)
    before = ""
    if head.words:
        names = indented([f"LABELS = {literal(list(head.words))}"], "")
        before = f"# The labels' names, in the order of their numbers.\n{names}\n\n\n"
    weights = f", features[{literal(head.weight)}]" if head.weight else ""
    lines.append(f"return inputs, labels{weights}")
    return (
        f"{before}def prepare(features, labels=None):\n"
        f'    """Converts a batch of the Estimator\'s input_fn for the model."""\n{indented(lines)}\n'
    )


def _numbered(head: Head) -> list[str]:
    """Returns the lines that convert labels' names to numbers, and several labels to one row for each example."""
    is_many, lines = head.kind == LABELS, list[str]()
    if head.words:
        values = "labels.values[:, tf.newaxis]" if is_many else "tf.reshape(labels, [-1, 1])"
        numbers = "tf.argmax(known, axis=1)"
        message = f'["a label is not in LABELS", {values}]'
        lines = [
            f"known = tf.equal({values}, LABELS)",
            f"tf.debugging.Assert(tf.reduce_all(tf.reduce_any(known, axis=1)), {message})",
            f"labels = {f'tf.SparseTensor(labels.indices, {numbers}, labels.dense_shape)' if is_many else numbers}",
        ]
    if not is_many:
        return lines
    lines.append(f"labels = tf.sparse.to_indicator(labels, {head.units})")
    return ["if isinstance(labels, tf.SparseTensor):", *(f"    {line}" for line in lines)]


def _loss(head: Head) -> str:
    """Returns the source of a batch's loss, and of the examples' losses if the loss_fn is a user's."""
    kind = "int64" if head.kind in (CLASSES, LABELS) else "float32"
    shape = "[-1, 1]" if head.kind == CLASSES else "tf.shape(logits)"
    lines, before = [f"labels = tf.reshape(tf.cast(labels, tf.{kind}), {shape})"], ""
    if head.loss is not None:
        width = 1 if head.kind == CLASSES else head.units
        given = {"labels": tf.TensorSpec([None, width], kind), "logits": tf.TensorSpec([None, head.units])}
        docstring = '"""Returns the loss of each example, like the loss_fn."""'
        body = indented([docstring, *lines_of("the loss_fn", head.loss, given)])
        before = f"def example_losses(labels, logits):\n{body}\n\n\n"
        lines.append("losses = example_losses(labels, logits)")
    elif head.kind == CLASSES:
        cross = "tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels[:, 0], logits=logits)"
        lines.append(f"losses = {cross}[:, tf.newaxis]")
    elif head.kind == REGRESSION:
        lines.append("losses = tf.math.squared_difference(labels, logits)")
    else:
        labels = "labels" if head.kind == BINARY else "tf.cast(labels, tf.float32)"
        lines.append(f"losses = tf.nn.sigmoid_cross_entropy_with_logits(labels={labels}, logits=logits)")
        lines += ["losses = tf.reduce_mean(losses, axis=1, keepdims=True)"] if head.kind == LABELS else []
    weights = "tf.reshape(tf.cast(weights, tf.float32), [-1, 1])"
    if head.reduction == WEIGHTED_MEAN:
        lines += [
            "if weights is not None:",
            f"    weights = tf.broadcast_to({weights}, tf.shape(losses))",
            "    return tf.math.divide_no_nan(tf.reduce_sum(losses * weights), tf.reduce_sum(weights))",
        ]
    else:
        lines += ["if weights is not None:", f"    losses *= {weights}"]
    lines.append(f"return tf.reduce_{'sum' if head.is_sum else 'mean'}(losses)")
    return (
        f"{before}def loss(labels, logits, weights=None):\n"
        f'    """Returns the {head.reduction} of the examples\' losses, like the Estimator."""\n{indented(lines)}\n'
    )


def _optimizers(optimizers: Mapping[str, Optimizer], place: str) -> str:
    made = {name: _optimizer(each, place) for name, each in optimizers.items()}
    rows = [f"    {literal(name)}: {text}," for name, text in made.items()]
    if any(ALWAYS_WITH_SLOT in each.options.values() for each in optimizers.values()):
        rows.insert(0, "    # With a function, even of 0, Keras skips rows that no example has, like TensorFlow 1.")
    return (
        "def optimizers():\n"
        '    """Returns the optimizer of each part, with the same slots as the Estimator\'s."""\n'
        f"{indented(['return {', *rows, '}'])}\n"
    )


def _optimizer(optimizer: Optimizer, place: str = "tf.keras.optimizers.legacy.") -> str:
    options = []
    for name, value in optimizer.options.items():
        text = literal(value)
        if isinstance(value, dict):
            kind = getattr(tf.keras.optimizers.schedules, value["class_name"])
            usual = {key: each.default for key, each in inspect.signature(kind).parameters.items()}
            given = {key: each for key, each in value["config"].items() if key != "name" and each != usual[key]}
            text = call(f"tf.keras.optimizers.schedules.{kind.__name__}", **given)
        options.append(f"{name}={text}")
    return f"{'' if optimizer.kind in OWN else place}{optimizer.kind}({', '.join(options)})"


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
