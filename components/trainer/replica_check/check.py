"""Finds out whether a user's code trains and evaluates right under several replicas: a step decides, not the source.

Under an Estimator, the v1 optimizers' `minimize` divides the loss by the number of replicas, which is right for a mean
over each replica's examples; `apply_gradients` and Keras optimizers do not, which is right for their sum, or for a loss
that is divided by the global batch. The other pairings train with another learning rate, without an error.

One step is trained under 2 replicas and on one device, from the same weights, with the same batch. An equal update is
right; one that is exactly half or twice as large is refused; any other is trained, with a warning that tells how much
it differs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import tensorflow as tf

from tfx_estimator.components.trainer.replica_check import verdict
from tfx_estimator.components.trainer.replica_check.comparison import Change
from tfx_estimator.components.trainer.replica_check.evaluation import check_evaluation
from tfx_estimator.components.trainer.replica_check.trial import NotTriedError, Trial
from tfx_estimator.components.trainer.user_input.input_check import Reading, Spec, check_training, read_batches
from tfx_estimator.model_fn.strategies import make_strategy
from tfx_estimator.pipeline.config.distribution import Distribution, Strategy, TrainStrategy
from tfx_estimator.pipeline.errors import UserCodeError

_REPLICAS = 2


def section(distribution: Distribution) -> TrainStrategy:
    """The strategy to train the step with: of logical CPUs, whatever the devices and workers that train."""
    return _on_cpus(distribution.train, _REPLICAS)


def run(
    make_spec: Callable[[], Spec], distribution: Distribution, strategy: tf.distribute.Strategy, training_dir: str
) -> None:
    """Trains a step and evaluates a batch under two replicas and on one device, and leaves a verdict in a file.

    Args:
        make_spec: Calls the user's trainer_fn, and returns what it returns.
        distribution: What was declared.
        strategy: Of `section`.
        training_dir: The training folder; a restart finds the verdict there.

    Raises:
        UserCodeError: The update or a metric under several replicas is another one than on one device, or there is
            none; or the training's batches cannot be shared.
    """
    alone = make_strategy(_on_cpus(distribution.train, 1))
    evaluation = make_strategy(_on_cpus(distribution.eval, _REPLICAS))
    notes: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(make_spec, strategy, alone, folder)
        reading = read_batches(make_spec())
        if verdict.trains_in_step(distribution.train):
            notes += check_training(make_spec, distribution, reading)
            with _unknown(notes, "whether its loss is scaled right"):
                notes += _try_training(trial, distribution, reading)
        if verdict.has_replicas(distribution.eval):
            with _unknown(notes, "whether its evaluation under several replicas is that of one device"):
                notes += check_evaluation(make_spec, trial, evaluation, reading)
    verdict.write(training_dir, notes)


@contextmanager
def _unknown(notes: list[str], question: str) -> Iterator[None]:
    """Says so if the user's code cannot be tried."""
    try:
        yield
    except NotTriedError as error:
        notes.append(f"{question} is not known: {error}")


def _on_cpus(declared: Strategy, replicas: int) -> TrainStrategy:
    strategy = declared.strategy if declared.nature.on_devices else "mirrored"
    return TrainStrategy.parse_obj({"strategy": strategy, "devices": {"cpu": replicas}})


def _try_training(trial: Trial, distribution: Distribution, reading: Reading) -> list[str]:
    """Compares updates, and refuses wrong ones; returns what the user should know."""
    sizes = set(reading.sizes()[0].values())
    if len(sizes) > 1 or sizes.pop() < _REPLICAS:
        raise NotTriedError("TrainSpec.input_fn makes no batch that two replicas could share")
    try:
        changes = trial.compare_updates(reading)
    except UserCodeError as error:
        if not distribution.train.is_collective or verdict.has_replicas(distribution.train):
            raise
        # An optimizer that is built outside of the model_fn, say, is called once in each worker.
        raise NotTriedError(f"it is tried in one process, where each worker has its own, and {error.what}") from error
    if not changes:
        raise NotTriedError("the first steps of training change no variable")
    _refuse_exact(changes, distribution)
    if not (apart := _most_different(changes)):
        return []
    # Does each replica compute something of its own part of the batch? Of the same examples it computes the same.
    changes = trial.compare_updates(reading, same_examples=True)
    _refuse_exact(changes, distribution)
    if not (still := _most_different(changes)):
        return [
            "each replica computes something of its own part of the batch, such as the statistics of a batch "
            f"normalisation or a mean over weights, so that the update of {apart.name} differs by {_percent(apart)} "
            "from that of one device; the scale is right"
        ]
    return [
        f"under {_REPLICAS} replicas the first update of {still.name} is {still.ratio:.2f} times as large as on one "
        f"device, and differs from it by {_percent(still)}, though all are given the same examples: by chance, as with "
        "dropout; or a part of the loss is counted once for each replica, such as a regularisation beside a loss "
        "divided by the global batch; or each replica clips its gradients; or the loss compares the examples of a "
        "batch with one another"
    ]


def _most_different(changes: Sequence[Change]) -> Change | None:
    """The change that is neither the same nor exactly so many times as large, if there is one."""
    unequal = [change for change in changes if change.scale is None]
    return max(unequal, key=lambda change: change.difference, default=None)


def _percent(change: Change) -> str:
    return f"{100 * change.difference:.1f} %"


def _refuse_exact(changes: Sequence[Change], distribution: Distribution) -> None:
    """Refuses updates that are exactly N times, or a part in N of, those of one device."""
    exact = [(change.name, change.scale) for change in changes if change.scale and change.scale != 1]
    # Chance may come close for a variable of one element, but not for half of them.
    if not exact or 2 * len(exact) < sum(change.scale != 1 for change in changes):
        return
    name, scale = exact[0]
    what = f"under {_REPLICAS} replicas the update of {name} is {scale:.2f} times that of one device"
    if distribution.train.replicas != _REPLICAS:
        what += f" (the declared ones are {distribution.train.replicas})"
    if scale < 1:
        raise UserCodeError(
            f"{what}: the loss is a sum, or divided by the global batch, and `minimize` of a v1 optimizer divides it "
            "by the number of replicas once more",
            expected="the same update under any number of replicas",
            todo="with `minimize`, return the mean over the replica's own examples; or keep the loss, and use "
            "tf.gradients and optimizer.apply_gradients; or declare the strategy one_device",
        )
    raise UserCodeError(
        f"{what}: the loss is a mean over each replica's own examples, and the optimizer adds up the gradients of all "
        "replicas (apply_gradients, or get_updates of a Keras optimizer); or each replica clips its gradients before "
        "they are added up",
        expected="the same update under any number of replicas",
        todo="use `minimize` of a tf.compat.v1.train optimizer; or divide the loss by "
        "tf.distribute.get_strategy().num_replicas_in_sync; or declare the strategy one_device",
    )
