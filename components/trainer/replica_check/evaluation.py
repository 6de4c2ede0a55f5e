"""Finds out whether an evaluation under several replicas reports what one device would: one batch decides.

TensorFlow averages the losses that the replicas report. That is right for a mean over each replica's examples; a sum
over them, or a loss divided by the global batch, comes out divided by the number of replicas.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfx_estimator.components.trainer.replica_check.comparison import scale_of
from tfx_estimator.components.trainer.replica_check.trial import NotTriedError, Trial
from tfx_estimator.components.trainer.user_input.input_check import Reading, Spec, read_batches, read_part
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.config.distribution import Distribution

# Of metrics next to 0.
_NOTHING = 1e-6


def check_evaluation(
    make_spec: Callable[[], Spec],
    trial: Trial,
    strategy: tf.distribute.Strategy,
    distribution: Distribution,
    train: Reading,
) -> list[str]:
    """Evaluates a batch under several replicas, and the same on one device; returns what the user should know.

    Args:
        make_spec: Calls the user's trainer_fn, and returns what it returns.
        strategy: The declared one, of a few replicas.

    Raises:
        UserCodeError: A metric is exactly N times, or a part in N of, that of one device.
        NotTriedError: The evaluation does not work on one CPU.
    """
    replicas = strategy.num_replicas_in_sync
    reading = read_batches(make_spec(), ModeKeys.EVAL)
    sizes = set(reading.sizes()[0].values())
    if len(sizes) > 1 or sizes.pop() < replicas:
        raise NotTriedError(f"EvalSpec.input_fn makes no batch that {replicas} replicas could share")
    part = read_part(make_spec, reading, distribution, replicas, ModeKeys.EVAL)
    alone, shared = trial.evaluate(train, part.reading if part.whole else reading, strategy, part.whole)
    notes = []
    # The loss first: what explains it explains the others.
    for name in sorted(alone.keys() & shared.keys(), key=lambda name: (name != "loss", name)):
        one, many = np.asarray(alone[name]), np.asarray(shared[name])
        if one.dtype.kind not in "fiu" or one.shape != many.shape or np.array_equal(one, many, equal_nan=True):
            continue
        one, many = one.astype(np.float64), many.astype(np.float64)
        scale = scale_of(one, many, replicas, noise=_NOTHING)
        if scale == 1:
            continue
        what = f"under {replicas} replicas (trainer.distribution.eval) the evaluation's `{name}` is "
        if scale is not None:
            why = "it does not add up over the parts of a batch"
            if name == "loss" and scale < 1:
                why = "it is a sum over a replica's examples, or divided by the global batch; TensorFlow averages it"
            raise UserCodeError(
                f"{what}{scale:.2f} times that of one device: {why}",
                expected="the same metrics under any number of replicas",
                todo="in mode EVAL return the mean over the examples that the model_fn is given (tf.compat.v1 canned "
                "Estimators: loss_reduction=SUM_OVER_BATCH_SIZE); or leave trainer.distribution.eval at one_device",
            )
        told = f"{many:.6g}, and {one:.6g} on one device" if not one.shape else "another one than on one device"
        notes.append(
            f"{what}{told}: it is computed of each replica's part of a batch by itself, such as a mean over weights"
            + ("; tf.compat.v1.metrics.mean(values, weights) is exact" if name == "loss" else "")
        )
    return notes
