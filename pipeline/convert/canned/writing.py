"""Writes network.py: the source of a Keras model that does what a canned Estimator does."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfx_estimator.pipeline.convert.canned import parts, parts_keras3
from tfx_estimator.pipeline.convert.canned.columns import REGISTERED, Columns, Input
from tfx_estimator.pipeline.convert.canned.head import BINARY, CLASSES, LABELS, REGRESSION, WEIGHTED_MEAN, Head
from tfx_estimator.pipeline.convert.canned.optimizers import ALWAYS_WITH_SLOT, MOMENTUM, Optimizer
from tfx_estimator.pipeline.convert.canned.reading import Canned
from tfx_estimator.pipeline.convert.canned.text import Source, call, indented, literal
from tfx_estimator.pipeline.convert.canned.tracing import lines_of

_KERAS = "tf.keras.layers"
# What of the parts another one needs.
_NEEDS = {
    "HashBucket": ("is_absent",),
    "Identity": ("is_absent",),
    "Crossed": ("is_absent", "sparse"),
    "Bag": ("sparse",),
}
_HEADER = '''\
"""{title}

It was a canned Estimator, {name}. This file is yours to change.
It needs TensorFlow alone, {keras}.

    import network

    model = network.network()
    network.restore(model)  # the Estimator's weights, slots and step, of weights.npz beside this file
    model.fit(dataset.map(network.prepare))  # dataset: what the Estimator's input_fn returned

The model answers with logits, {logits}. To train anew, call model.compile() in place of restore.
"""

import os

import numpy as np
import tensorflow as tf

HERE = os.path.dirname(os.path.abspath(__file__))
{absent}# Of each feature: its type, and the values of an example; None is any number of them.
INPUTS = {inputs}
'''
# Parts that know of values that are not there; and what they know.
_OF_CATEGORIES = ("HashBucket", "WordIds", "Identity", "Crossed")
_ABSENT = """\
# The id of a value that is not there; -1 is that of a word which no vocabulary knows.
ABSENT = -2
# What the inputs of categories have there.
NO_WORD, NO_NUMBER = "\\0", tf.int64.min
"""
_KERAS_2 = "with Keras 2: from TensorFlow 2.16 on, tf_keras and TF_USE_LEGACY_KERAS=1 in the environment"
_KERAS_3 = "from 2.16 on, with its Keras 3"


@dataclasses.dataclass(frozen=True)
class Written:
    """A network that was written.

    Args:
        text: Of network.py.
        files: Vocabularies beside it, by their names.
        weights: The place of each weight, by its name in the checkpoint.
        inputs: By the feature's name.
    """

    text: str
    files: dict[str, list[str]]
    weights: dict[str, str]
    inputs: dict[str, Input]


def write(
    canned: Canned, features: Mapping[str, Any], optimizers: Mapping[str, Optimizer], is_keras_3: bool = False
) -> Written:
    """Writes the source.

    Args:
        features: Of a batch, as the input_fn gives them.
        optimizers: By `deep` and `linear`.

    Raises:
        UserCodeError: Something of it cannot be said.
    """
    columns = Columns(canned, features)
    lines, logits = [], []
    if canned.deep:
        lines += _deep(canned, columns)
        logits.append("deep")
    if canned.linear:
        added = [columns.linear(column) for column in canned.linear]
        columns.parts.add("Total")
        name = columns.layer("linear_bias")
        columns.weights["linear/linear_model/bias_weights"] = f"{name}/bias"
        lines += [f"linear = {call('Total', name=name)}(", *_listed(added), ")"]
        logits.append("linear")
    both = logits[0]
    if len(logits) > 1:
        both = f"{call(f'{_KERAS}.Add', name=columns.layer('logits'))}([{', '.join(logits)}])"
    # Names of layers are of fewer characters than names of features, and an input is a layer beside the others.
    can_name = all(re.fullmatch(r"[A-Za-z0-9.][\w.\-]*", name) for name in columns.inputs)
    named = ", name=name" if can_name and columns.layers.isdisjoint(columns.inputs) else ""
    lines = [
        "inputs = {",
        f"    name: tf.keras.Input((width,), dtype=dtype{named}) for name, (dtype, width) in INPUTS.items()",
        "}",
        *columns.lines,
        *lines,
        f"return CannedModel(inputs=inputs, outputs={both}, name={literal(_snake(canned.name))})",
    ]
    own = {each.kind for each in optimizers.values()} if is_keras_3 else set()
    if not is_keras_3 and any(each.kind == MOMENTUM for each in optimizers.values()):
        columns.parts.add(MOMENTUM)
    body = [
        _header(canned, columns, _KERAS_3 if is_keras_3 else _KERAS_2),
        *_parts(columns.parts),
        *columns.functions,
        f'def network():\n    """Returns the model, with weights to begin with."""\n{indented(lines)}\n',
        _prepare(canned.head),
        _loss(canned.head),
        *(inspect.getsource(kind) for kind in vars(parts_keras3).values() if _is_of(own, kind)),
        _optimizers(optimizers, "" if is_keras_3 else "tf.keras.optimizers.legacy."),
        _dense(columns.inputs),
        _model(canned.head, is_keras_3),
        inspect.getsource((parts_keras3 if is_keras_3 else parts).places),
        inspect.getsource(parts.restore),
    ]
    return Written("\n\n".join(body), columns.files, columns.weights, columns.inputs)


def _dense(inputs: Mapping[str, Input]) -> str:
    """The source that makes a feature an input."""
    if any(each.dtype != "float32" for each in inputs.values()):
        return inspect.getsource(parts.dense)
    return inspect.getsource(parts.dense_numbers).replace("dense_numbers", "dense")


def _model(head: Head, is_keras_3: bool) -> str:
    """The source of the model, whose loss has a part for each replica where it is a mean: Keras 3 has but one."""
    source = inspect.getsource(parts.CannedModel)
    if is_keras_3 or head.is_sum:
        source = re.sub(r" *# Under a strategy.*\n *part = .*\n", "", source).replace(
            "gradient(part,", "gradient(value,"
        )
    return source


def _is_of(names: set[str], kind: Any) -> bool:
    """Is it one of some optimizers of Keras 3, or a base of one."""
    return isinstance(kind, type) and any(issubclass(getattr(parts_keras3, name), kind) for name in names)


def _header(canned: Canned, columns: Columns, keras: str) -> str:
    shapes = {name: (each.dtype, each.width) for name, each in sorted(columns.inputs.items())}
    made = [f"a network of {' and '.join(map(str, canned.hidden_units))} units"] if canned.deep else []
    made += ["a linear model"] if canned.linear else []
    title = f"{' beside '.join(made)}, in Keras."
    logits = f"[batch, {canned.head.units}]"
    return (
        _HEADER.format(
            title=title[0].upper() + title[1:],
            name=canned.name,
            keras=keras,
            logits=logits,
            absent=_ABSENT if columns.parts.intersection(_OF_CATEGORIES) else "",
            inputs=_table(shapes),
        ).rstrip("\n")
        + "\n"
    )


def _table(values: Mapping[str, Any]) -> str:
    rows = [f"    {literal(key)}: {literal(value)}," for key, value in values.items()]
    return "\n".join(["{", *rows, "}"])


def _parts(names: set[str]) -> list[str]:
    """The source of parts, in the order in which they stand."""
    wanted = names.union(*(_NEEDS.get(name, ()) for name in names))
    return [inspect.getsource(value) for name, value in vars(parts).items() if name in wanted]


def _deep(canned: Canned, columns: Columns) -> list[str]:
    """The lines of the network, and the places of its weights."""
    joined = [columns.deep(column) for column in canned.deep]
    lines, activation = [f"deep = {joined[0]}"], canned.activation
    if callable(activation):
        body = lines_of("the activation_fn", activation, {"value": tf.TensorSpec([None, None])})
        columns.functions.append(f"{REGISTERED}\ndef activation(value):\n{indented(body)}\n")
        activation = Source("activation")
    if len(joined) > 1:
        lines = [f"deep = {call(f'{_KERAS}.Concatenate', name=columns.layer('deep_input'))}(", *_listed(joined), ")"]
    for index, units in enumerate(canned.hidden_units):
        name = f"hiddenlayer_{index}"
        own = columns.layer(f"deep_{name}")
        lines.append(f"deep = {call(f'{_KERAS}.Dense', units, activation, name=own)}(deep)")
        columns.weights |= {f"dnn/{name}/{each}": f"{own}/{each}" for each in ("kernel", "bias")}
        if canned.dropout is not None:
            own = columns.layer(f"deep_dropout_{index}")
            lines.append(f"deep = {call(f'{_KERAS}.Dropout', canned.dropout, name=own)}(deep)")
        if canned.batch_norm:
            norm = f"batchnorm_{index}"
            own = columns.layer(f"deep_{norm}")
            lines.append(f"deep = {call(f'{_KERAS}.BatchNormalization', momentum=0.999, name=own)}(deep)")
            names = ("gamma", "beta", "moving_mean", "moving_variance")
            columns.weights |= {f"dnn/{name}/{norm}/{each}": f"{own}/{each}" for each in names}
    own = columns.layer("deep_logits")
    columns.weights |= {f"dnn/logits/{each}": f"{own}/{each}" for each in ("kernel", "bias")}
    return [*lines, f"deep = {call(f'{_KERAS}.Dense', canned.head.units, name=own)}(deep)"]


def _listed(values: list[str]) -> list[str]:
    return ["    [", *(f"        {each}," for each in values), "    ]"]


def _prepare(head: Head) -> str:
    """The source that makes batches of Keras of those of the input_fn."""
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
        f'    """Returns what the model takes of a batch of the Estimator\'s input_fn."""\n{indented(lines)}\n'
    )


def _numbered(head: Head) -> list[str]:
    """The lines that make numbers of the labels' names; and one row for each example, where it has several labels."""
    is_many, lines = head.kind == LABELS, list[str]()
    if head.words:
        values = "labels.values[:, tf.newaxis]" if is_many else "tf.reshape(labels, [-1, 1])"
        numbers = "tf.argmax(known, axis=1)"
        told = f'["a label is none of LABELS", {values}]'
        lines = [
            f"known = tf.equal({values}, LABELS)",
            f"tf.debugging.Assert(tf.reduce_all(tf.reduce_any(known, axis=1)), {told})",
            f"labels = {f'tf.SparseTensor(labels.indices, {numbers}, labels.dense_shape)' if is_many else numbers}",
        ]
    if not is_many:
        return lines
    lines.append(f"labels = tf.sparse.to_indicator(labels, {head.units})")
    return ["if isinstance(labels, tf.SparseTensor):", *(f"    {line}" for line in lines)]


def _loss(head: Head) -> str:
    """The source of the loss of a batch, and of each example's where it is a user's."""
    kind = "int64" if head.kind in (CLASSES, LABELS) else "float32"
    shape = "[-1, 1]" if head.kind == CLASSES else "tf.shape(logits)"
    lines, before = [f"labels = tf.reshape(tf.cast(labels, tf.{kind}), {shape})"], ""
    if head.loss is not None:
        width = 1 if head.kind == CLASSES else head.units
        given = {"labels": tf.TensorSpec([None, width], kind), "logits": tf.TensorSpec([None, head.units])}
        told = '"""Returns the loss of each example, as the loss_fn did."""'
        body = indented([told, *lines_of("the loss_fn", head.loss, given)])
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
        f'    """Returns the {head.reduction} of the examples\' losses, as the Estimator did."""\n{indented(lines)}\n'
    )


def _optimizers(optimizers: Mapping[str, Optimizer], place: str) -> str:
    made = {name: _optimizer(each, place) for name, each in optimizers.items()}
    rows = [f"    {literal(name)}: {text}," for name, text in made.items()]
    if any(ALWAYS_WITH_SLOT in each.options.values() for each in optimizers.values()):
        rows.insert(
            0, "    # A function, even of 0, has Keras leave rows alone that no example has, as TensorFlow 1 did."
        )
    return (
        "def optimizers():\n"
        '    """Returns the optimizer of each part, with the slots of the Estimator\'s."""\n'
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
    return f"{'' if optimizer.kind == MOMENTUM else place}{optimizer.kind}({', '.join(options)})"


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
