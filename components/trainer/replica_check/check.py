"""Finds out whether a user's code trains and evaluates right under several replicas: a step decides, not the source.

Under an Estimator, the v1 optimizers' `minimize` divides the loss by the number of replicas, which is right for a mean
over each replica's examples; `apply_gradients` and Keras optimizers do not, which is right for their sum, or for a loss
that is divided by the global batch. The other pairings train with another learning rate, without an error; so does a
regularisation that each replica adds, where what they add is summed.
"""

from __future__ import annotations

import ast
import json
import math
import os
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import tensorflow as tf

from tfx_estimator.components.trainer.protocol.job import BUILT_IN_TRAINER_FN, Job
from tfx_estimator.components.trainer.replica_check import inputs as input_probe
from tfx_estimator.components.trainer.replica_check.changes import WEIGHTS, Change, Changes
from tfx_estimator.components.trainer.replica_check.evaluation import try_evaluation
from tfx_estimator.components.trainer.replica_check.inputs import Reading, Spec, read_batches
from tfx_estimator.components.trainer.replica_check.trial import NotTriedError, Trial
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.model_fn.strategies import make_strategy
from tfx_estimator.pipeline.config.distribution import Distribution, Strategy, TrainStrategy
from tfx_estimator.pipeline.errors import UserCodeError
from tfx_estimator.pipeline.user_source.modules import find_arguments, find_module, is_project, is_source

MARKER = "replica_check.json"
_IN_STEP = ("mirrored", "central_storage", "multi_worker_mirrored", "tpu")
_REPLICAS = 2
# The same update, but for rounding.
_SAME = 1e-3
# Where it is not for rounding: what two trainings on one device differ by, beside what those of one and two devices do.
_NOISIER = 4
# Where chance has spoken, a wrong pairing still gives 0.5 or 2; what dropout gives lies within.
_TOLERANCE = 4 / 3
# And two more batches decide.
_TRIALS = 3
_EXACT = 0.01


def is_needed(job: Job) -> bool:
    """Tells whether a training has code of the user's, several replicas in step, and no verdict yet.

    Args:
        job: What to train.

    Returns:
        Whether to start a task that calls `run`.
    """
    distribution = Settings.from_dict(job.settings).distribution
    if not (_trains_in_step(distribution.train) or _has_replicas(distribution.eval)):
        return False
    if tf.io.gfile.exists(_marker(job.training_dir)):
        return False
    if job.exec_properties.get("trainer_fn") == BUILT_IN_TRAINER_FN:
        section = Settings.from_dict(job.settings).trainer
        return section is not None and _may_be_model_fn(section.model or "")
    return True


def section(distribution: Distribution, replicas: int = _REPLICAS) -> TrainStrategy:
    """The strategy to try: of logical CPUs, whatever the devices and workers that train.

    Args:
        distribution: What was declared.
        replicas: In one process.
    """
    return _on_cpus(distribution.train, replicas)


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
    folder = os.path.join(training_dir, "replica_check")
    evaluation = make_strategy(_on_cpus(distribution.eval, _REPLICAS))
    trial = Trial(make_spec, strategy, make_strategy(section(distribution, 1)), folder)
    notes: list[str] = []
    changes: Changes = {}
    try:
        reading = read_batches(make_spec(), _TRIALS)
        if _trains_in_step(distribution.train):
            notes += input_probe.check_training(make_spec, distribution, reading)
            with _unknown(notes, "whether its loss is scaled right"):
                changes = _try_training(trial, distribution, reading, notes)
        if _has_replicas(distribution.eval):
            with _unknown(notes, "whether its evaluation under several replicas is that of one device"):
                notes += try_evaluation(make_spec, trial, evaluation, (reading.element_spec, reading.batches[0]))
    finally:
        if tf.io.gfile.exists(folder):
            tf.io.gfile.rmtree(folder)
    _write(training_dir, changes, notes)


def read_notes(training_dir: str) -> list[str]:
    """Reads what the user should know of a training that is not refused.

    Args:
        training_dir: The training folder.
    """
    if not tf.io.gfile.exists(_marker(training_dir)):
        return []
    with tf.io.gfile.GFile(_marker(training_dir)) as file:
        return json.loads(file.read())["notes"]


@contextmanager
def _unknown(notes: list[str], question: str) -> Iterator[None]:
    """Says so where the user's code cannot be tried."""
    try:
        yield
    except NotTriedError as error:
        notes.append(f"{question} is not known: {error}")


def _trains_in_step(train: TrainStrategy) -> bool:
    return train.strategy in _IN_STEP and (train.replicas > 1 or train.strategy == "tpu" or _has_replicas(train))


def _has_replicas(declared: Strategy) -> bool:
    """Are there several replicas in one process."""
    if declared.strategy == "one_device":
        return False
    if declared.devices.cpu or declared.devices.gpu:
        return declared.devices.count > 1
    # No devices are all GPUs.
    return len(tf.config.list_physical_devices("GPU")) > 1


def _on_cpus(declared: Strategy, replicas: int) -> TrainStrategy:
    strategy = "central_storage" if declared.strategy == "central_storage" else "mirrored"
    return TrainStrategy.parse_obj({"strategy": strategy, "devices": {"cpu": replicas}})


def _try_training(trial: Trial, distribution: Distribution, reading: Reading, notes: list[str]) -> Changes:
    """Compares updates, with ever more patience; returns what a wrong one would be seen by."""
    element_spec, batches = reading.element_spec, reading.batches
    sizes = set(reading.sizes()[0].values())
    if len(sizes) > 1 or sizes.pop() < _REPLICAS:
        raise NotTriedError("TrainSpec.input_fn makes no batch that two replicas could share")
    try:
        changes = trial.compare(element_spec, batches[0])
    except UserCodeError as error:
        if distribution.train.strategy != "multi_worker_mirrored" or _has_replicas(distribution.train):
            raise
        # An optimizer that is built outside of the model_fn, say, is called once in each worker.
        raise NotTriedError(f"it is tried in one process, where each worker has its own, and {error.what}") from error
    if not changes:
        notes.append("the first steps of training change no variable: whether its loss is scaled right is not known")
    if all(change.difference <= _SAME for change in changes.values()):
        return changes
    wrong = {key: change for key, change in changes.items() if _is_wrong(change.ratio)}
    if wrong and all(_is_exact(change.ratio) for change in wrong.values()):
        # Chance gives no such number.
        _judge(wrong, distribution)
    # Each replica computes something of its own part of the batch, or draws lots, or is wrong.
    copies, noise = trial.compare(element_spec, batches[0], copies=True), trial.noise(element_spec, batches[0])
    bounds = {key: max(_SAME, _NOISIER * noise[key].difference) for key in copies if key in noise}
    steady = {key: copies[key] for key, bound in bounds.items() if bound <= _NOISIER * _SAME}
    _judge({key: change for key, change in steady.items() if change.difference > bounds[key]}, distribution)
    rest = {key: change for key, change in changes.items() if key not in steady}
    if any(_is_wrong(change.ratio) and not _is_exact(change.ratio) for change in rest.values()):
        others = [trial.compare(element_spec, batches[seed % len(batches)], seed) for seed in range(1, _TRIALS)]
        medians = {key: [each[key].ratio for each in (changes, *others) if key in each] for key in rest}
        rest = {key: Change(statistics.median(medians[key]), rest[key].difference) for key in rest}
    _judge(_wrong_kinds(rest), distribution)
    # Adam divides next to nothing by itself: rounding, which its slots do not show.
    sure = {part for part, kind in steady if kind != WEIGHTS}
    if any(kind != WEIGHTS or part not in sure for part, kind in rest):
        notes.append(_CHANCE)
    elif any(change.difference > _SAME for key, change in changes.items() if key in steady):
        notes.append(_OWN_PART)
    return {**changes, **rest}


def _wrong_kinds(changes: Changes) -> Changes:
    """For each kind of variable the part in the middle, where it is wrong: chance moves some parts, a scale all."""
    middle: Changes = {}
    for kind in {kind for _, kind in changes}:
        parts = sorted((key for key in changes if key[1] == kind), key=lambda key: _distance(changes[key].ratio))
        key = parts[(len(parts) - 1) // 2]
        if _is_wrong(changes[key].ratio):
            middle[key] = changes[key]
    return middle


_CHANCE = (
    "the update under several replicas is that of one device as far as can be told: chance, as in dropout, makes each "
    "replica's another one, so a part of the loss that is counted too often would not be seen"
)
_OWN_PART = (
    "each replica computes something of its own part of the batch, such as the statistics of a batch normalisation or "
    "a mean over weights, so that the update differs from that of one device; the scale is right"
)


def _judge(wrong: Changes, distribution: Distribution) -> None:
    """Refuses updates that are not those of one device."""
    if not wrong:
        return
    (part, kind), change = max(wrong.items(), key=lambda item: (_distance(item[1].ratio), item[1].difference))
    replicas = distribution.train.replicas
    where = f"of `{part}`" if kind == WEIGHTS else f"of `{part}` (the optimizer's `{kind}`)"
    if not _is_wrong(change.ratio):
        (part, kind), change = max(wrong.items(), key=lambda item: item[1].difference)
        where = f"of `{part}`" if kind == WEIGHTS else f"of `{part}` (the optimizer's `{kind}`)"
        raise UserCodeError(
            f"under {_REPLICAS} replicas that are given the same examples the update {where} differs by "
            f"{100 * change.difference:.2g} % from that of one device: a part of the loss is counted once for each "
            "replica, such as a regularisation beside a loss divided by the global batch; or each replica clips its "
            "gradients; or the loss compares the examples of a batch with one another",
            expected="the same update under any number of replicas",
            todo="divide the regularisation by tf.distribute.get_strategy().num_replicas_in_sync; or return the mean "
            "over the replica's own examples, and use `minimize` of a tf.compat.v1.train optimizer; or declare the "
            "strategy one_device",
        )
    what = f"under {_REPLICAS} replicas the update {where} is {change.ratio:.2f} times that of one device"
    if replicas != _REPLICAS:
        what += f" (the declared ones are {replicas})"
    if change.ratio < 1:
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


def _distance(ratio: float) -> float:
    return abs(math.log(ratio)) if 0 < ratio < math.inf else math.inf


def _is_wrong(ratio: float) -> bool:
    # Not a number is wrong as well.
    return not _distance(ratio) <= math.log(_TOLERANCE)


def _is_exact(ratio: float) -> bool:
    return any(abs(ratio / wrong - 1) < _EXACT for wrong in (1 / _REPLICAS, _REPLICAS))


def _may_be_model_fn(target: str) -> bool:
    """Tells a whole model_fn from a network function, whose loss is the built-in one; read as text, not imported."""
    module_name, _, name = target.partition(":")
    module = find_module(module_name)
    if module is None or module.file is None or is_project(module) or not is_source(module):
        return False
    try:
        arguments = find_arguments(ast.parse(module.file.read_bytes()), name)
    except (SyntaxError, ValueError):
        return False
    if arguments is None:
        return True
    # The rule of components.trainer.user_code.is_model_fn.
    return {"features", "labels"} <= {each.arg for each in (*arguments.args, *arguments.kwonlyargs)}


def _write(training_dir: str, changes: Changes, told: list[str]) -> None:
    found = {f"{part} {kind}": change._asdict() for (part, kind), change in changes.items()}
    temporary = _marker(training_dir) + ".tmp"
    with tf.io.gfile.GFile(temporary, "w") as file:
        file.write(json.dumps({"replicas": _REPLICAS, "updates": found, "notes": told}, indent=2) + "\n")
    tf.io.gfile.rename(temporary, _marker(training_dir), overwrite=True)


def _marker(training_dir: str) -> str:
    return os.path.join(training_dir, MARKER)
