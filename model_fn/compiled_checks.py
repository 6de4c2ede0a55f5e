"""What a compiled Keras model must bring to be trained, evaluated and kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.keras_model import output_names
from tfx_estimator.model_fn.own_methods import own_methods
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.distribution import Distribution

_OF_ONE_HOT = re.compile("(top_?k_?)?categorical|one_?hot|cosine_?similarity|f(beta|1)score", re.IGNORECASE)


def check_compiled(
    model: tf.keras.Model,
    target: str,
    distribution: Distribution,
    precision: str,
    outputs: Any,
) -> None:
    """Refuses what would fail after the training, or have no effect.

    Args:
        target: `trainer.model`.
        outputs: What it puts out of a batch.

    Raises:
        UserCodeError: It has no loss, or one of one-hot labels, or an optimizer of TensorFlow 1, or one that
            keeps averages of the weights; or what is declared is of the built-in training step.
    """
    if precision != "float32":
        raise UserCodeError(
            f"trainer.model: {target!r} returns a compiled model, which brings a precision of its own: "
            f"trainer.precision, {precision}, is for a network",
            expected="trainer.precision: float32, beside a compiled model",
            todo="remove trainer.precision, and call tf.keras.mixed_precision.set_global_policy in the function, "
            "before the layers are made",
        )
    if not model.loss:
        raise UserCodeError(
            f"trainer.model: {target!r} returns a model that is compiled without a loss: it could not be evaluated",
            expected="compile(optimizer=…, loss=…), also where a train_step of its own computes another one",
            todo="compile it with the loss that evaluations report",
        )
    _refuse_one_hot(model, target, outputs)
    _refuse_one_hot_metrics(model, target)
    if distribution.train.gradient_compression != "none":
        refuse_option(target, "trainer.distribution.train.gradient_compression")
    # Within one that scales the loss.
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    if not isinstance(optimizer, (tf.keras.optimizers.Optimizer, tf.keras.optimizers.legacy.Optimizer)):
        # Keras wraps it.
        own = type(getattr(optimizer, "optimizer", optimizer)).__name__
        raise UserCodeError(
            f"trainer.model: {target!r} returns a model that is compiled with {own}, an optimizer of TensorFlow 1, "
            "whose state Keras would not keep",
            expected="an optimizer of tf.keras.optimizers or of tf.keras.optimizers.legacy",
            todo="compile the model with one of these; or return the network without compile, and declare "
            "trainer.optimizer",
        )
    if getattr(optimizer, "use_ema", False):
        raise UserCodeError(
            f"trainer.model: {target!r} returns a model whose optimizer has use_ema: Keras puts the averages in the "
            "weights' place at the end of a `fit`, after the last checkpoint",
            expected="an optimizer without use_ema",
            todo="leave it out",
        )


def _refuse_one_hot(model: tf.keras.Model, target: str, outputs: Any) -> None:
    """Refuses a loss of Keras's that spreads a label over all scores, without a word; the user's own may be any."""
    flat, given = tf.nest.flatten(outputs), model.loss
    if "compute_loss" in own_methods(model):
        return
    if isinstance(given, Mapping):
        names = sorted(outputs) if isinstance(outputs, Mapping) else output_names(model, len(flat))
        given = [given.get(name) for name in names]
    for loss, output in zip(given if isinstance(given, (list, tuple)) else [given] * len(flat), flat):
        found, shape = tf.keras.losses.get(loss), tf.TensorShape(getattr(output, "shape", None))[1:]
        by_keras = getattr(found, "__module__", "").startswith(("keras.", "tf_keras."))
        if by_keras and shape.is_fully_defined() and _spreads(getattr(found, "call", found), shape.num_elements()):
            name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
            raise UserCodeError(
                f"trainer.model: {target!r} returns a model with the loss {name}, which is of one-hot labels",
                expected="a loss of labels that are numbers, int64 [batch]",
                todo="compile it with sparse_categorical_crossentropy, or a loss of your own that calls "
                "tf.one_hot(labels, num_classes) itself",
            )


def _refuse_one_hot_metrics(model: tf.keras.Model, target: str) -> None:
    """Refuses a metric of Keras's that takes a class's number for its one-hot label, and measures something else."""
    if {"test_step", "compute_metrics"} & {*own_methods(model)}:
        return
    lists = (getattr(model.compiled_metrics, each, None) for each in ("_user_metrics", "_user_weighted_metrics"))
    for metric in tf.nest.flatten(list(lists)):
        name = metric if isinstance(metric, str) else getattr(metric, "__name__", type(metric).__name__)
        home = "keras." if isinstance(metric, str) else getattr(metric, "__module__", "")
        if home.startswith(("keras.", "tf_keras.")) and _OF_ONE_HOT.match(name):
            raise UserCodeError(
                f"trainer.model: {target!r} returns a model with the metric {name}, which is of one-hot labels",
                expected="metrics of labels that are numbers, int64 [batch]",
                todo="compile it with accuracy, or with sparse metrics such as SparseTopKCategoricalAccuracy",
            )


def _spreads(loss: Callable, places: int) -> bool:
    """Whether a loss does not read a label as a place among scores: it is the same wherever they are high, or fails."""
    scores = np.linspace(0.1, 0.9, places, dtype=np.float32)[np.newaxis]
    try:
        with tf.init_scope():
            pairs = [(loss([[at]], scores), loss([[at]], scores[:, ::-1])) for at in (0.0, places - 1.0)]
            return places > 1 and all(np.isclose(np.mean(one), np.mean(other), rtol=1e-4) for one, other in pairs)
    except ValueError:
        # Of labels and scores of other shapes.
        return places > 1


def refuse_option(target: str, option: str) -> None:
    """Refuses what is of the built-in training step.

    Args:
        target: `trainer.model`.

    Raises:
        UserCodeError: Always.
    """
    raise UserCodeError(
        f"trainer.model: {target!r} returns a compiled model, which is trained by its own optimizer: {option} could "
        "not be given to it",
        expected=f"no {option.rpartition('.')[2]}, or a model that is not compiled",
        todo="remove it, or return the network without compile: the built-in step then trains it",
    )
