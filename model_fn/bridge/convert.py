"""The way out of an Estimator, from its code and its checkpoints alone: what its training becomes, with a proof."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Mapping
from typing import Any, Optional

from tfx_estimator.model_fn.bridge.estimator import bring_back_estimator
from tfx_estimator.pipeline.base.errors import DeclarationError, UserCodeError
from tfx_estimator.pipeline.base.stack.stacks import has_keras_3
from tfx_estimator.pipeline.base.text import one_line

KERAS2, KERAS3, KEPT = "keras2", "keras3", "kept"
WAYS = (KERAS2, KERAS3, KEPT)
# What a function returns, or the dict of a trainer_fn.
_PARTS = ("estimator", "train_spec", "eval_spec")


def convert(
    estimator: Any,
    train_input_fn: Any,
    eval_input_fn: Any,
    output: str,
    to: Optional[str] = None,
    checkpoint: str = "",
    serving_input_receiver_fn: Any = None,
) -> Any:
    """Writes an Estimator's training as one of Keras, with the proof that it goes on in the same way.

        proof = tfx_estimator.convert(estimator, train_input_fn, eval_input_fn, "converted")

    Args:
        estimator: As your code makes it.
        train_input_fn: The input_fn of its training, or the TrainSpec.
        eval_input_fn: The input_fn of its evaluation, or the EvalSpec.
        output: The folder to make; it appears only when complete and proved.
        to: `kept` keeps the graph of its training, as a model of either Keras, and is the default for a model_fn;
            `keras3`, the default for a canned Estimator if it is installed, or `keras2` writes its source.
        checkpoint: One without its `.index`, or a folder, for its last; the default is the Estimator's last one.
        serving_input_receiver_fn: That of exports, for `kept`; the default is that of the EvalSpec's first exporter,
            and without one the features.

    Returns:
        The proof, as in proof.json; `holds` is True, and `lines()` are what `tfx-estimator convert` prints.

    Raises:
        DeclarationError: The output exists, there is no checkpoint, or no Keras 3; or `to` is none of these.
        UserCodeError: It is no Estimator, a part of it cannot be converted, or the checkpoint is not its own.
        NotEqualError: The two differ; nothing is written.
    """
    bring_back_estimator()
    import tensorflow as tf

    if not isinstance(estimator, tf.compat.v1.estimator.Estimator):
        raise UserCodeError(
            f"{one_line(type(estimator).__name__)} is no Estimator",
            expected="one of tf.estimator, as your code makes it for training",
            todo="return the Estimator, the input_fn of its training and that of its evaluation, in this order",
        )
    if os.path.lexists(output):
        raise DeclarationError(f"{one_line(output)} exists", expected="a folder to make", todo="choose another name")
    if to not in (None, *WAYS):
        raise DeclarationError(f"to: {to!r}", expected=f"one of {', '.join(WAYS)}", todo="choose one, or leave it out")
    require_keras_3(to)
    from tfx_estimator.model_fn.bridge.canned import conversion, reading

    checkpoint, estimator = _checkpoint(checkpoint or estimator.model_dir), _alone(estimator)
    train, evaluate = (_whole(getattr(each, "input_fn", each)) for each in (train_input_fn, eval_input_fn))
    # What writes each of WAYS is called here, and nowhere else.
    if to == KEPT or not (to or reading.is_canned(estimator)):
        from tfx_estimator.model_fn.bridge.kept.keeping import keep

        return keep(
            estimator, train, evaluate, output, checkpoint, serving_input_receiver_fn or _receiver_fn(eval_input_fn)
        )
    steps = getattr(eval_input_fn, "steps", None)
    return conversion.convert(estimator, checkpoint, train, evaluate, output, steps, to != KERAS2 and has_keras_3())


def parts(made: Any) -> tuple[Any, Any, Any]:
    """Returns the Estimator and what it trains and is evaluated on, of a function's result."""
    if isinstance(made, Mapping) and made.keys() >= {*_PARTS}:
        made = tuple(made[name] for name in _PARTS)
    if not isinstance(made, tuple) or len(made) != len(_PARTS):
        raise UserCodeError(
            f"the function returns {one_line(type(made).__name__)}",
            expected="an Estimator, the input_fn of its training and that of its evaluation; or a TrainSpec and an "
            "EvalSpec in their place",
            todo="return these three, in this order",
        )
    return made


def require_keras_3(to: Optional[str]) -> None:
    """Refuses Keras 3 where it is not installed."""
    if to == KERAS3 and not has_keras_3():
        raise DeclarationError(
            f"--to {KERAS3}: there is no Keras 3 here",
            expected="TensorFlow from 2.16 on, which brings it, and converts what earlier ones trained",
            todo="run this command there, on this folder; or convert to keras2",
        )


def _alone(estimator: Any) -> Any:
    """Returns an Estimator that is evaluated on one device."""
    alone = copy.copy(estimator)
    alone._train_distribution = alone._eval_distribution = None
    return alone


def _whole(input_fn: Any) -> Any:
    """Returns an input_fn that makes whole batches, where it would ask a strategy for its part."""
    import tensorflow as tf
    from tensorflow.python.util import function_utils

    asks = "input_context" in function_utils.fn_args(input_fn)
    return functools.partial(input_fn, input_context=tf.distribute.InputContext()) if asks else input_fn


def _receiver_fn(eval_spec: Any) -> Any:
    exporters = [getattr(each, "_saved_model_exporter", None) for each in getattr(eval_spec, "exporters", None) or ()]
    return next((each._serving_input_receiver_fn for each in exporters if each), None)


def _checkpoint(named: str) -> str:
    import tensorflow as tf

    found = tf.train.latest_checkpoint(named) if os.path.isdir(named) else named
    if not found or not tf.io.gfile.exists(f"{found}.index"):
        raise DeclarationError(
            f"there is no checkpoint {one_line(named)}",
            expected="a model_dir with one, or a checkpoint without its .index",
            todo="name another, or train",
        )
    return found
