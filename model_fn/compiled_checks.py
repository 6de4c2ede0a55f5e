"""What a compiled Keras model must bring to be trained, evaluated and kept."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfx_estimator.model_fn.one_hot import refuse_one_hot
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.errors import UserCodeError


def check_compiled(
    model: tf.keras.Model,
    target: str,
    distribution: Distribution,
    precision: str,
    outputs: Any,
    num_classes: int,
) -> None:
    """Refuses what would fail after the training, or have no effect.

    Args:
        model: Compiled, and built.
        target: `trainer.model`.
        distribution: As declared.
        precision: Likewise.
        outputs: As of `refuse_one_hot`.
        num_classes: Likewise.

    Raises:
        UserCodeError: It has no loss, or a loss or metric of other labels, or an optimizer of TensorFlow 1, or one that
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
    refuse_one_hot(model, target, outputs, num_classes)
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


def refuse_option(target: str, option: str) -> None:
    """Refuses what is of the built-in training step.

    Args:
        target: `trainer.model`.
        option: Dotted path in the declaration.

    Raises:
        UserCodeError: Always.
    """
    raise UserCodeError(
        f"trainer.model: {target!r} returns a compiled model, which is trained by its own optimizer: {option} could "
        "not be given to it",
        expected=f"no {option.rpartition('.')[2]}, or a model that is not compiled",
        todo="remove it, or return the network without compile: the built-in step then trains it",
    )
