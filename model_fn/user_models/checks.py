"""What the built-in step cannot do for a training step of the user's, and what a compiled model must bring."""

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
# By which a class of the user's trains and evaluates.
_METHODS = ("train_step", "test_step", "compute_loss", "compute_metrics")


def refuse_step_options(section: TrainerSection, brings: str) -> None:
    """Refuses options of the built-in training step where another one trains, on which they would have no effect.

    Args:
        brings: What `trainer.model` is instead of a network.
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
    """Returns the names of the methods of training and evaluation that a model does not have from Keras."""
    return [name for name in _METHODS if getattr(type(model), name) is not getattr(tf.keras.Model, name)]


def refuse_own_methods(network: Any) -> None:
    """Refuses a network whose methods would never be called: its loss and its steps are the declaration's.

    Args:
        network: What the user's function returned; what is no model, or is compiled, passes.
    """
    # AutoGraph of TensorFlow 2.21, which looks through what a replica runs, does not know `:=`.
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
    """Refuses what would fail after the training, or be another training without a word."""
    if not model.loss:
        raise UserCodeError(
            f"trainer.model: {target!r} returns a model that is compiled without a loss: it could not be evaluated",
            expected="compile(optimizer=…, loss=…), also where a train_step of its own computes another one",
            todo="compile it with the loss that evaluations report",
        )
    _refuse_one_hot(model, target, outputs)
    _refuse_one_hot_metrics(model, target)
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
