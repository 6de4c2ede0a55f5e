"""Writes network.py: the source of a Keras model that does what a canned Estimator does."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping
from typing import Any

from tfx_estimator.pipeline.convert.canned import parts
from tfx_estimator.pipeline.convert.canned.columns import Columns, Input
from tfx_estimator.pipeline.convert.canned.optimizers import ALWAYS_WITH_SLOT, Optimizer
from tfx_estimator.pipeline.convert.canned.reading import BINARY, CLASSES, Canned, Head
from tfx_estimator.pipeline.convert.canned.text import call, indented, literal

_KERAS = "tf.keras.layers"
# What each network.py has; and what of the parts another one needs.
_ALWAYS = ("dense", "CannedModel", "places", "restore")
_NEEDS = {
    "HashBucket": ("is_absent",),
    "Identity": ("is_absent",),
    "Crossed": ("is_absent", "sparse"),
    "Bag": ("sparse",),
}
_HEADER = '''\
"""{title}

It was a canned Estimator, {name}. This file is yours to change. It needs TensorFlow alone, with Keras 2: from
TensorFlow 2.16 on, tf_keras and TF_USE_LEGACY_KERAS=1 in the environment.

    import network

    model = network.network()
    network.restore(model)  # the Estimator's weights, slots and step, of weights.npz beside this file
    model.fit(dataset.map(network.prepare))  # dataset: what the Estimator's input_fn returned

The model answers with logits, {logits}.
"""

import os

import numpy as np
import tensorflow as tf

HERE = os.path.dirname(os.path.abspath(__file__))
# The id of a value that is not there; -1 is that of a word which no vocabulary knows.
ABSENT = -2
# Of each feature: its type, and the values of an example; None is any number of them.
INPUTS = {inputs}
'''


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


def write(canned: Canned, features: Mapping[str, Any], optimizers: Mapping[str, Optimizer]) -> Written:
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
    body = [
        _header(canned, columns.inputs),
        *_parts(columns.parts),
        f'def network():\n    """Returns the model, with weights to begin with."""\n{indented(lines)}\n',
        _prepare(canned.head),
        _loss(canned.head),
        _optimizers(optimizers),
        *(inspect.getsource(getattr(parts, name)) for name in _ALWAYS),
    ]
    return Written("\n\n".join(body), columns.files, columns.weights, columns.inputs)


def _header(canned: Canned, inputs: Mapping[str, Input]) -> str:
    shapes = {name: (each.dtype, each.width) for name, each in sorted(inputs.items())}
    made = [f"a network of {' and '.join(map(str, canned.hidden_units))} units"] if canned.deep else []
    made += ["a linear model"] if canned.linear else []
    title = f"{' beside '.join(made)}, in Keras."
    logits = f"[batch, {canned.head.units}]"
    return (
        _HEADER.format(
            title=title[0].upper() + title[1:], name=canned.name, logits=logits, inputs=_table(shapes)
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
    lines = [f"deep = {joined[0]}"]
    if len(joined) > 1:
        lines = [f"deep = {call(f'{_KERAS}.Concatenate', name=columns.layer('deep_input'))}(", *_listed(joined), ")"]
    for index, units in enumerate(canned.hidden_units):
        name = f"hiddenlayer_{index}"
        own = columns.layer(f"deep_{name}")
        lines.append(f"deep = {call(f'{_KERAS}.Dense', units, canned.activation, name=own)}(deep)")
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
    lines = ["inputs = {name: dense(name, features[name], *each) for name, each in INPUTS.items()}"]
    lines += ["if labels is None:", "    return inputs"]
    before = ""
    if head.words:
        names = indented([f"LABELS = {literal(list(head.words))}"], "")
        before = f"# The labels' names, in the order of their numbers.\n{names}\n\n\n"
        lines += [
            "known = tf.equal(tf.reshape(labels, [-1, 1]), LABELS)",
            'tf.debugging.Assert(tf.reduce_all(tf.reduce_any(known, axis=1)), ["a label is none of LABELS", labels])',
            "labels = tf.argmax(known, axis=1)",
        ]
    weights = f", features[{literal(head.weight)}]" if head.weight else ""
    lines.append(f"return inputs, labels{weights}")
    return (
        f"{before}def prepare(features, labels=None):\n"
        f'    """Returns what the model takes of a batch of the Estimator\'s input_fn."""\n{indented(lines)}\n'
    )


def _loss(head: Head) -> str:
    how = "sum" if head.is_sum else "mean"
    if head.kind == CLASSES:
        lines = [
            "labels = tf.reshape(tf.cast(labels, tf.int64), [-1])",
            "losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)[:, tf.newaxis]",
        ]
    else:
        lines = ["labels = tf.reshape(tf.cast(labels, tf.float32), tf.shape(logits))"]
        cross = "tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)"
        lines.append(f"losses = {cross if head.kind == BINARY else 'tf.math.squared_difference(labels, logits)'}")
    lines += ["if weights is not None:", "    losses *= tf.reshape(tf.cast(weights, tf.float32), [-1, 1])"]
    lines.append(f"return tf.reduce_{how}(losses)")
    return (
        f"LOSS_IS_MEAN = {not head.is_sum}\n\n\n"
        "def loss(labels, logits, weights=None):\n"
        f'    """Returns the {how} of the examples\' losses, as the Estimator did."""\n{indented(lines)}\n'
    )


def _optimizers(optimizers: Mapping[str, Optimizer]) -> str:
    made = {name: f"tf.keras.optimizers.legacy.{_optimizer(each)}" for name, each in optimizers.items()}
    rows = [f"    {literal(name)}: {text}," for name, text in made.items()]
    if any(ALWAYS_WITH_SLOT in each.options.values() for each in optimizers.values()):
        rows.insert(
            0, "    # A function, even of 0, has Keras leave rows alone that no example has, as TensorFlow 1 did."
        )
    return (
        "def optimizers():\n"
        '    """Returns the optimizer of each part; those of the class legacy have the Estimator\'s slots."""\n'
        f"{indented(['return {', *rows, '}'])}\n"
    )


def _optimizer(optimizer: Optimizer) -> str:
    options = []
    for name, value in optimizer.options.items():
        text = literal(value)
        if isinstance(value, dict):
            given = {key: each for key, each in value["config"].items() if key != "name"}
            text = call(f"tf.keras.optimizers.schedules.{value['class_name']}", **given)
        options.append(f"{name}={text}")
    return f"{optimizer.kind}({', '.join(options)})"


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
