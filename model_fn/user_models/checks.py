"""Checks of options that a user's own training step ignores, and of compiled models."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.model_fn.user_models.keras_model import is_compiled, output_names
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.runtime import AUTO
from tfx_estimator.pipeline.config.trainer import TrainerSection

_OF_ONE_HOT = re.compile("(top_?k_?)?categorical|one_?hot|cosine_?similarity|f(beta|1)score", re.IGNORECASE)
# Overridable methods of training and evaluation.
_METHODS = ("train_step", "test_step", "compute_loss", "compute_metrics")


def refuse_step_options(section: TrainerSection, brings: str) -> None:
    """Refuses options of the built-in training step, which have no effect on a training step of the user's.

    Args:
        brings: Predicate of the message's sentence on `trainer.model`.
    """
    train = section.distribution.train
    declared = {
        "trainer.gradient_accumulation": section.gradient_accumulation > 1,
        "trainer.parallel_parts": section.parallel_parts not in (AUTO, 1),
        "trainer.model_parallel": section.model_parallel,
        "trainer.pipeline_parallel": section.pipeline_parallel,
        "trainer.xla": section.xla,
        "trainer.sync_every": section.sync_every,
        "trainer.precision": section.precision != "float32",
        "trainer.distribution.train.gradient_compression": train.gradient_compression != "none",
    }
    for option in (name for name, is_declared in declared.items() if is_declared):
        raise UserCodeError(
            f"{option} is declared, and {section.model!r} {brings}, which has a training step of its own",
            expected="a function that returns a network, not compiled: the built-in step then trains it",
            todo=f"remove {option}, and do the same in the function, or name a network by trainer.model",
        )


def own_methods(model: tf.keras.Model) -> list[str]:
    """Returns the names of the methods of training and evaluation that a model's class overrides."""
    return [name for name in _METHODS if getattr(type(model), name) is not getattr(tf.keras.Model, name)]


def refuse_own_methods(network: Any) -> None:
    """Refuses a network with methods of its own, which the built-in steps never call.

    Args:
        network: The user's function's result; anything but an uncompiled model passes.
    """
    # AutoGraph of TensorFlow 2.21, which converts the code that a replica runs, does not support `:=`.
    own = own_methods(network) if isinstance(network, tf.keras.Model) and not is_compiled(network) else []
    if not own:
        return
    raise UserCodeError(
        f"trainer.model: the network, a {type(network).__name__} that is not compiled, has a {' and a '.join(own)} of "
        "its own, which would never be called: a network is trained by the declared optimizer and loss",
        expected="a compiled model, on path keras or keras_custom_loop, or a network without one",
        todo=f"compile the model in the function, with its loss; or remove {' and '.join(own)}",
    )


def check_compiled(model: tf.keras.Model, target: str, outputs: Any) -> None:
    """Refuses a compiled model that would fail after the training, or silently train otherwise than intended."""
    if not model.loss:
        raise UserCodeError(
            f"trainer.model: {target!r} returns a model that is compiled without a loss: it could not be evaluated",
            expected="compile(optimizer=…, loss=…), even if its own train_step computes another loss",
            todo="compile it with the loss that evaluations report",
        )
    _refuse_one_hot(model, target, outputs)
    _refuse_one_hot_metrics(model, target)
    # A LossScaleOptimizer wraps the optimizer.
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    if not isinstance(optimizer, (tf.keras.optimizers.Optimizer, tf.keras.optimizers.legacy.Optimizer)):
        # Keras wraps an optimizer of TensorFlow 1.
        own = type(getattr(optimizer, "optimizer", optimizer)).__name__
        raise UserCodeError(
            f"trainer.model: {target!r} returns a model that is compiled with {own}, an optimizer of TensorFlow 1, "
            "whose state Keras would not keep",
            expected="an optimizer of tf.keras.optimizers or of tf.keras.optimizers.legacy",
            todo="compile the model with one of these; or return the network uncompiled, and declare trainer.optimizer",
        )
    if getattr(optimizer, "use_ema", False):
        raise UserCodeError(
            f"trainer.model: {target!r} returns a model whose optimizer has use_ema: Keras replaces the weights by the "
            "averages at the end of a `fit`, after the last checkpoint",
            expected="an optimizer without use_ema",
            todo="leave it out",
        )


def _refuse_one_hot(model: tf.keras.Model, target: str, outputs: Any) -> None:
    """Refuses Keras's one-hot losses, which would silently broadcast a label over all scores; custom losses pass."""
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
    """Refuses Keras's metrics of one-hot labels, which measure something else for labels that are numbers."""
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
    """True if a loss does not use a label as an index: it fails, or is the same for reversed scores."""
    scores = np.linspace(0.1, 0.9, places, dtype=np.float32)[np.newaxis]
    try:
        with tf.init_scope():
            pairs = [(loss([[at]], scores), loss([[at]], scores[:, ::-1])) for at in (0.0, places - 1.0)]
            return places > 1 and all(np.isclose(np.mean(one), np.mean(other), rtol=1e-4) for one, other in pairs)
    except ValueError:
        # The loss requires labels and scores of equal shape.
        return places > 1
