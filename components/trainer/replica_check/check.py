"""Checks, by running a step, that a user's code trains and evaluates correctly under several replicas.

Under an Estimator, the v1 optimizers' `minimize` divides the loss by the number of replicas, which is right for a mean
over each replica's examples; `apply_gradients` and Keras optimizers do not, which is right for their sum, or for a loss
that is divided by the global batch. The other pairings train with a wrong learning rate, without an error.

One step is trained under 2 replicas and on one device, from the same weights, with the same batch. An equal update is
right; one that is exactly half or twice as large is refused; any other is accepted, with a warning that gives the
difference. If each replica takes a whole batch of its own, the update may equal that of one device with one of these,
or with all of them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Optional

import numpy as np
import tensorflow as tf

from tfx_estimator.components.trainer.replica_check import verdict
from tfx_estimator.components.trainer.replica_check.trial import Change, NotTriedError, Rows, Trial, scale_of
from tfx_estimator.components.trainer.user_input.input_check import (
    Reading,
    Spec,
    check_training,
    read_batches,
    read_part,
)
from tfx_estimator.components.trainer.user_input.shared_batches import call_input_fn, check_dataset
from tfx_estimator.model_fn.bridge.tpu import params_in
from tfx_estimator.model_fn.parallel.strategies import make_strategy
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.base.stack.mode_keys import ModeKeys
from tfx_estimator.pipeline.config.distribution import Distribution, Strategy, TrainStrategy
from tfx_estimator.pipeline.config.strategies import ON_DEVICES

_REPLICAS = 2
_BY_CHANCE = "by chance, as with dropout"
_SHOWN = 3
# Absolute tolerance of metrics.
_NEXT_TO_0 = 1e-6
# Compares a training of many replicas with one of a single device, each with its rows.
_Compare = Callable[[Rows, Rows], list[Change]]


def section(distribution: Distribution) -> TrainStrategy:
    """Returns the strategy of the trial step: logical CPUs in place of the declared devices and workers."""
    return _on_cpus(distribution.train, _REPLICAS)


def run(
    make_spec: Callable[[], Spec], distribution: Distribution, strategy: tf.distribute.Strategy, training_dir: str
) -> None:
    """Trains a step and evaluates a batch under two replicas and on one device, and writes a verdict to a file."""
    alone = make_strategy(_on_cpus(distribution.train, 1))
    evaluation = make_strategy(_on_cpus(distribution.eval, _REPLICAS))
    notes: list[str] = []
    batch = ""
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(make_spec, strategy, alone, folder)
        reading = read_batches(make_spec())
        if verdict.trains_in_step(distribution.train):
            replicas = verdict.replicas_in_step(distribution.train)
            part = read_part(make_spec, reading, distribution, replicas)
            batch, warnings = check_training(make_spec, distribution, reading, part, replicas)
            notes += warnings
            with _note_untried(notes, "whether its loss is scaled right"):
                notes += _try_training(trial, distribution, part.reading if part.whole else reading, part.whole)
        if verdict.has_replicas(distribution.eval):
            with _note_untried(notes, "whether its evaluation under several replicas is that of one device"):
                notes += _check_evaluation(make_spec, trial, evaluation, distribution, reading)
    verdict.write(training_dir, notes, batch, [note for note in notes if _BY_CHANCE in note])


def check_inputs(spec: Spec, distribution: Distribution) -> None:
    """Refuses an input_fn whose tensors several synchronous replicas cannot share, without a training step."""
    train, evaluate, estimator = spec["train_spec"], spec["eval_spec"], spec["estimator"]
    for mode, each, needed in (
        (ModeKeys.TRAIN, train, verdict.trains_in_step(distribution.train)),
        (ModeKeys.EVAL, evaluate, verdict.has_replicas(distribution.eval)),
    ):
        if needed:
            with tf.Graph().as_default():
                params = params_in(estimator, mode)
                check_dataset(call_input_fn(each.input_fn, mode, params, estimator.config), mode)


@contextmanager
def _note_untried(notes: list[str], question: str) -> Iterator[None]:
    """Adds a note if the user's code cannot be tried."""
    try:
        yield
    except NotTriedError as error:
        notes.append(f"{question} is not known: {error}")


def _on_cpus(declared: Strategy, replicas: int) -> TrainStrategy:
    strategy = declared.strategy if declared.traits.on_devices else ON_DEVICES
    return TrainStrategy.parse_obj({"strategy": strategy, "devices": {"cpu": replicas}})


def _try_training(trial: Trial, distribution: Distribution, reading: Reading, whole: bool) -> list[str]:
    """Compares updates, and refuses wrong ones; returns warnings."""
    sizes = set(reading.sizes()[0].values())
    if len(sizes) > 1 or sizes.pop() < _REPLICAS:
        raise NotTriedError("TrainSpec.input_fn makes no batch that two replicas could share")

    def compare(many: Rows, one: Rows) -> list[Change]:
        try:
            changes, apart = trial.compare_updates(reading, many, one)
        except UserCodeError as error:
            if not distribution.train.is_collective or verdict.has_replicas(distribution.train):
                raise
            # For example an optimizer built outside of the model_fn, which each worker calls only once.
            raise NotTriedError(
                f"the trial runs in one process, where in training each worker has its own, and {error.what}"
            ) from error
        if apart:
            raise _not_reduced(apart)
        if not changes:
            raise NotTriedError("the first steps of training change no variable")
        return changes

    return _compare_whole(compare, distribution, reading.size) if whole else _compare(compare, distribution, reading)


def _compare(compare: _Compare, distribution: Distribution, reading: Reading) -> list[str]:
    """Checks that replicas sharing a batch train as one device does with all of it; returns warnings."""
    own = reading.size // _REPLICAS
    batch = Rows(own * _REPLICAS)
    changes = compare(batch, batch)
    _refuse_exact(changes, distribution)
    if not (different := _most_different(changes)):
        return []
    # With the same examples in each replica, the update is equal if only statistics of its part made it differ.
    batch = Rows(own, _REPLICAS)
    changes = compare(batch, batch)
    _refuse_exact(changes, distribution)
    if still := _most_different(changes):
        return [_differs(still)]
    return [
        "each replica computes something over its own part of the batch, such as the statistics of a batch "
        f"normalisation or a weighted mean, so that the update of {different.name} differs by {_percent(different)} "
        "from that of one device; the scale is right"
    ]


def _compare_whole(compare: _Compare, distribution: Distribution, size: int) -> list[str]:
    """Checks that replicas with a whole batch each train as one device does with one of these, or with all of them.

    The first is a mean over the replicas, the second a sum over the global batch. Only the user knows which one is
    meant: constants, such as the learning rate, may be chosen for either batch.
    """
    every, own = Rows(size, _REPLICAS), size // _REPLICAS * _REPLICAS
    # With the same mean, but other examples in each replica: the same ones would hide gradients that are not added up.
    changes = compare(Rows(own, _REPLICAS, parts=_REPLICAS), Rows(own))
    if _most_different(changes):
        changes = compare(every, Rows(size))
    if exact := _find_exact(changes):
        _refuse_exact(compare(every, every), distribution)
        name, scale = exact
        return [
            f"under {_REPLICAS} replicas with {size:,} examples each the update of {name} is {scale:.2f} times that of "
            f"one device with {size:,}: it equals that of one device with {size * _REPLICAS:,}"
        ]
    return [_differs(still)] if (still := _most_different(changes)) else []


def _not_reduced(apart: Sequence[str]) -> UserCodeError:
    shown = ", ".join(f"`{name}`" for name in apart[:_SHOWN]) + (", …" if apart[_SHOWN:] else "")
    return UserCodeError(
        "the model_fn's own update does not add up the gradients of all replicas, and each trains a model of its own: "
        f"under {_REPLICAS} replicas the copies of {shown} differ",
        expected="the same update in each replica",
        todo="move the update to `_resource_apply_dense`, which apply_gradients of tf.compat.v1.train.Optimizer calls; "
        "or reduce the gradients first, by `batch_reduce_to` in a merge_call; or declare the strategy one_device",
    )


def _differs(still: Change) -> str:
    return (
        f"under {_REPLICAS} replicas the first update of {still.name} is {still.ratio:.2f} times as large as on one "
        f"device, and differs from it by {_percent(still)}, though all are given the same examples: {_BY_CHANCE}; "
        "or a part of the loss is counted once for each replica, such as a regularisation loss added to a loss "
        "divided by the global batch; or each replica clips its gradients; or the loss compares the examples of a "
        "batch with one another"
    )


def _most_different(changes: Sequence[Change]) -> Change | None:
    """Returns the largest change that is neither equal nor scaled by exactly N or 1/N, if there is one."""
    unequal = [change for change in changes if change.scale is None]
    return max(unequal, key=lambda change: change.difference, default=None)


def _percent(change: Change) -> str:
    return f"{100 * change.difference:.1f} %"


def _find_exact(changes: Sequence[Change]) -> Optional[tuple[str, float]]:
    """Finds an update that is exactly N or 1/N times that of one device; returns its variable and the factor."""
    exact = [(change.name, change.scale) for change in changes if change.scale and change.scale != 1]
    # A variable of one element may match by chance, but not half of the variables.
    if not exact or 2 * len(exact) < sum(change.scale != 1 for change in changes):
        return None
    return exact[0]


def _refuse_exact(changes: Sequence[Change], distribution: Distribution) -> None:
    """Refuses updates that are exactly N or 1/N times those of one device."""
    if not (exact := _find_exact(changes)):
        return
    name, scale = exact
    what = f"under {_REPLICAS} replicas the update of {name} is {scale:.2f} times that of one device"
    if distribution.train.replicas != _REPLICAS:
        what += f" (the declared ones are {distribution.train.replicas})"
    if scale < 1:
        raise UserCodeError(
            f"{what}: the loss is a sum, or divided by the global batch, and `minimize` of a v1 optimizer divides it "
            "by the number of replicas again",
            expected="the same update under any number of replicas",
            todo="with `minimize`, return the mean over the replica's own examples; or keep the loss, and use "
            "tf.gradients and optimizer.apply_gradients; or, if the loss is divided by the batch of one device, give "
            "each replica as large a one: an input_fn that takes `input_context` without get_per_replica_batch_size, "
            "any other by trainer.distribution.input_batch: per_replica; or declare the strategy one_device",
        )
    raise UserCodeError(
        f"{what}: the loss is a mean over each replica's own examples, and the optimizer adds up the gradients of all "
        "replicas (apply_gradients, or get_updates of a Keras optimizer); or each replica clips its gradients before "
        "they are added up",
        expected="the same update under any number of replicas",
        todo="use `minimize` of a tf.compat.v1.train optimizer; or divide the loss by "
        "tf.distribute.get_strategy().num_replicas_in_sync; or declare the strategy one_device",
    )


def _check_evaluation(
    make_spec: Callable[[], Spec],
    trial: Trial,
    strategy: tf.distribute.Strategy,
    distribution: Distribution,
    train: Reading,
) -> list[str]:
    """Evaluates a batch under several replicas and on one device; returns warnings.

    TensorFlow averages the replicas' losses. That is right for a mean over each replica's examples; a sum over them,
    or a loss divided by the global batch, ends up divided by the number of replicas.
    """
    replicas = strategy.num_replicas_in_sync
    reading = read_batches(make_spec(), ModeKeys.EVAL)
    sizes = set(reading.sizes()[0].values())
    if len(sizes) > 1 or sizes.pop() < replicas:
        raise NotTriedError(f"EvalSpec.input_fn makes no batch that {replicas} replicas could share")
    part = read_part(make_spec, reading, distribution, replicas, ModeKeys.EVAL)
    alone, shared = trial.evaluate(train, part.reading if part.whole else reading, strategy, part.whole)
    notes = []
    # The loss first: its cause usually explains the other metrics too.
    for name in sorted(alone.keys() & shared.keys(), key=lambda name: (name != "loss", name)):
        one, many = np.asarray(alone[name]), np.asarray(shared[name])
        if one.dtype.kind not in "fiu" or one.shape != many.shape or np.array_equal(one, many, equal_nan=True):
            continue
        one, many = one.astype(np.float64), many.astype(np.float64)
        scale = scale_of(one, many, replicas, noise=_NEXT_TO_0)
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
                todo="in mode EVAL return the mean over the examples of the model_fn's batch (tf.compat.v1 canned "
                "Estimators: loss_reduction=SUM_OVER_BATCH_SIZE); or leave trainer.distribution.eval at one_device",
            )
        found = f"{many:.6g}, and {one:.6g} on one device" if not one.shape else "not equal to that on one device"
        notes.append(
            f"{what}{found}: it is computed over each replica's part of a batch, such as a weighted mean"
            + ("; tf.compat.v1.metrics.mean(values, weights) is exact" if name == "loss" else "")
        )
    return notes
