"""Writes `training.py`: source code that resumes the training in Keras 3."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from tfx_estimator.model_fn.bridge.canned import parts_keras3
from tfx_estimator.model_fn.bridge.keras3.optimizers import optimizer_of

_HEAD = '''\
"""Resumes a training in Keras 3 from step {step}, with the Estimator's model, optimizer and optimizer state.

    import training

    model, optimizer = training.load()
    for {images}, labels in batches:
        loss = training.train_step(model, optimizer, {images}, labels)

{of_images}
labels are integers, [batch]. The Estimator's batches had {batch} examples.
{more}{fit}"""
'''
_FIT = """
`fit` runs the same steps, on a tf.data.Dataset of such batches:

    model, optimizer = training.load()
    model.compile(optimizer, loss=training.loss_of, metrics=["accuracy"])
    model.fit(batches)
"""
_NO_FIT = """
`fit` would omit the weight decay: use train_step.
"""
_LOAD = '''\
def load():
    """Returns the model and the optimizer with their state after step {step}."""
    model = keras.models.load_model(FOLDER / "model.keras", {custom}compile=False)
{normalise}    optimizer = {optimizer}
    optimizer.build(model.trainable_variables)
    state = {{variable.path: variable for variable in (*model.weights, *optimizer.variables)}}
    with np.load(FOLDER / "weights.npz") as stored:
        for path in stored:
            state[path].assign(stored[path])
    return model, optimizer
'''
_NORMALISE = """\
    for layer in model._flatten_layers():
        if type(layer) is keras.layers.BatchNormalization:
            layer.__class__ = BatchNormalization
"""
_STEP = '''\
@tf.function
def train_step(model, optimizer, {images}, labels):
    """Trains one step, and returns the loss of the batch, a scalar."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(loss_of(labels, model({images}, training=True)))
{more}    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss
'''
_OWN_LOSSES = """\
        # Losses of the layers.
        loss += tf.add_n(model.losses)
"""
_DECAY = """\
        kernels = [each for each in model.trainable_variables if "kernel" in each.name]
        loss += {factor!r} * tf.add_n([tf.nn.l2_loss(each) for each in kernels])
"""


@dataclasses.dataclass(frozen=True)
class Training:
    """Content of the source.

    Args:
        options: `Optimizer.resolved()`.
        rate: Of the learning rate: a class definition, or nothing, and the expression.
        class_weights: By label; empty is 1 for each.
        augment: The Estimator's augmentations of images: a line for each operation.
        normalised_parts: Number of parts of a batch that the Estimator normalised separately.
        inputs: Inputs of the model: dtype and shape by name.
        alone: True for a single input, passed as a tensor; else inputs are a dict.
        own_layers: Module and name of layer classes that are not Keras's.
    """

    step: int
    options: Mapping[str, Any]
    rate: tuple[str, str]
    classes: int
    label_smoothing: float
    class_weights: Sequence[float]
    batch: int
    augment: Sequence[str]
    normalised_parts: int
    inputs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    alone: bool = False
    own_layers: Sequence[tuple[str, str]] = ()
    sparse: bool = False
    normalises: bool = False
    own_losses: bool = False


def source_of(training: Training) -> str:
    """Returns the text of `training.py`."""
    rate, rate_made = training.rate
    optimizer, made = optimizer_of(training.options, rate_made, training.sparse)
    images = "images" if training.alone and "image" in training.inputs else "features"
    parts = [
        _head(training, images),
        _imports(training),
        rate,
        optimizer,
        _normalisation() if training.normalises else "",
        _load(training, made),
        _loss(training),
        _STEP.format(images=images, more=_more(training)),
    ]
    first, *rest = (each for each in parts if each)
    return first + "\n" + "\n\n".join(rest)


def _head(training: Training, images: str) -> str:
    if training.alone:
        (shape,) = training.inputs.values()
        of_images = f"{images} are {shape}, the output of the run's Transform;"
    else:
        of_images = f"{images} are a dict of tensors, the output of the run's Transform: "
        of_images += "".join(f"\n    {name}: {shape}" for name, shape in training.inputs.items()) + "\n"
    more = ""
    if training.augment:
        more += "The Estimator's images were then augmented by trainer.augment, in this order:"
        more += "".join(f"\n    {each}" for each in training.augment) + "\n"
    if training.normalised_parts > 1:
        more += f"The Estimator normalised each of the {training.normalised_parts} parts of a batch separately; here "
        more += "the whole batch is normalised.\n"
    return _HEAD.format(
        step=training.step,
        images=images,
        of_images=of_images,
        batch=training.batch,
        more=more,
        fit=_NO_FIT if training.options["weight_decay"] else _FIT,
    )


def _normalisation() -> str:
    source = inspect.getsource(parts_keras3.BatchNormalization)
    return (
        source.replace("tf.keras.utils", "keras.saving").replace("tf.keras", "keras").replace('"network"', '"training"')
    )


def _imports(training: Training) -> str:
    lines = ["from pathlib import Path", "", "import keras", "import numpy as np", "import tensorflow as tf"]
    if training.own_layers:
        lines += ["", *(f"from {module} import {name}" for module, name in training.own_layers)]
    return "\n".join([*lines, "", "FOLDER = Path(__file__).parent", ""])


def _load(training: Training, made: str) -> str:
    own = ", ".join(f'"{name}": {name}' for _, name in training.own_layers)
    custom = f"custom_objects={{{own}}}, " if own else ""
    normalise = _NORMALISE if training.normalises else ""
    return _LOAD.format(step=training.step, custom=custom, normalise=normalise, optimizer=made)


def _loss(training: Training) -> str:
    lines = ["labels = tf.cast(tf.reshape(labels, [-1]), tf.int32)"]
    if smoothing := training.label_smoothing:
        kept = f"{1.0 - smoothing!r} * tf.one_hot(labels, {training.classes}) + {smoothing!r} / {training.classes}"
        lines += [
            f"targets = {kept}",
            "losses = tf.nn.softmax_cross_entropy_with_logits(labels=targets, logits=logits)",
        ]
    else:
        lines.append("losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)")
    if training.class_weights:
        lines.append(f"losses *= tf.gather(tf.constant({list(training.class_weights)}), labels)")
    body = "".join(f"    {line}\n" for line in lines)
    doc = '    """Returns the loss of each example, float32 [batch]; logits are [batch, classes]."""\n'
    return f"def loss_of(labels, logits):\n{doc}{body}    return losses\n"


def _more(training: Training) -> str:
    more = _OWN_LOSSES if training.own_losses else ""
    decay = training.options["weight_decay"]
    return more + (_DECAY.format(factor=decay) if decay else "")
