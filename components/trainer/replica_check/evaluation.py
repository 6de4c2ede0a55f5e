"""Finds out whether an evaluation under several replicas reports what one device would: one batch decides.

TensorFlow averages the losses that the replicas report. That is right for a mean over each replica's examples; a sum
over them, or a loss divided by the global batch, comes out divided by the number of replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_estimator.components.trainer.replica_check.inputs import Batch, Spec, read_batches
from tfx_estimator.components.trainer.replica_check.trial import NotTriedError, Trial
from tfx_estimator.pipeline.errors import UserCodeError

# Relative; rounding is a thousand times smaller.
_SAME = 1e-3
# Not of numbers next to 0.
_LEAST = 1e-6
# A sum among two replicas gives 0.5; a mean over weights lies within.
_WRONG = 4 / 3


def try_evaluation(
    make_spec: Callable[[], Spec], trial: Trial, strategy: tf.distribute.Strategy, train: tuple[Any, Batch]
) -> list[str]:
    """Evaluates a batch under several replicas, and the same on one device.

    Args:
        make_spec: Calls the user's trainer_fn, and returns what it returns.
        trial: Evaluates.
        strategy: The declared one, of a few replicas.
        train: The element_spec and a batch of training.

    Returns:
        What the user should know of metrics that are not quite those of one device.

    Raises:
        UserCodeError: A metric is another one than on one device, or there is none.
        NotTriedError: The evaluation does not work on one CPU.
    """
    replicas = strategy.num_replicas_in_sync
    reading = read_batches(make_spec(), 1, tf.estimator.ModeKeys.EVAL)
    sizes = set(reading.sizes()[0].values())
    if len(sizes) > 1 or sizes.pop() < replicas:
        raise NotTriedError(f"EvalSpec.input_fn makes no batch that {replicas} replicas could share")
    alone, shared = trial.evaluate(train, (reading.element_spec, reading.batches[0]), strategy)
    factors = {name: _factor(alone[name], shared[name]) for name in sorted(alone, key=_rank) if name in shared}
    apart = {name: factor for name, factor in factors.items() if not abs(factor - 1) <= _SAME}
    for name, factor in apart.items():
        if not 1 / _WRONG <= factor <= _WRONG:
            raise UserCodeError(_what(name, factor, replicas) + _why(name, factor), expected=_EXPECTED, todo=_TODO)
    return [
        f"{_what(name, factor, replicas)}: it is computed of each replica's part of a batch by itself, such as a mean "
        "over weights" + ("; tf.compat.v1.metrics.mean(values, weights) is exact" if name == "loss" else "")
        for name, factor in apart.items()
    ]


_EXPECTED = "the same metrics under any number of replicas"
_TODO = (
    "in mode EVAL return the mean over the examples that the model_fn is given (tf.compat.v1 canned Estimators: "
    "loss_reduction=SUM_OVER_BATCH_SIZE); or leave trainer.distribution.eval at one_device"
)


def _what(name: str, factor: float, replicas: int) -> str:
    return (
        f"under {replicas} replicas (trainer.distribution.eval) the evaluation's `{name}` is {factor:.2f} times that "
        "of one device"
    )


def _why(name: str, factor: float) -> str:
    if name != "loss" or factor > 1:
        return ": it does not add up over the parts of a batch"
    return ": it is a sum over the replica's examples, or divided by the global batch, and TensorFlow averages it"


def _rank(name: str) -> tuple[bool, str]:
    # The loss first: what explains it explains the others.
    return name != "loss", name


def _factor(alone: Any, shared: Any) -> float:
    """How much larger a metric is; 1 where it is no number."""
    one, many = np.asarray(alone), np.asarray(shared)
    if one.dtype.kind not in "fiu" or one.shape != many.shape:
        return 1.0
    one, many = one.astype(np.float64), many.astype(np.float64)
    if np.allclose(one, many, rtol=_SAME, atol=_LEAST, equal_nan=True):
        return 1.0
    norm = float(np.linalg.norm(one))
    factor = float(np.linalg.norm(many)) / norm if norm else float("inf")
    # A vector may differ, and be as long.
    return factor if abs(factor - 1) > _SAME else 1 + float(np.linalg.norm(many - one)) / norm
