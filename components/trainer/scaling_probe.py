"""Finds out whether a user's loss and optimizer fit together under several replicas: one step decides, not the source.

Under an Estimator, the v1 optimizers' `minimize` divides the loss by the number of replicas, which is right for a mean
over each replica's examples; `apply_gradients` and Keras optimizers do not, which is right for their sum, or for a loss
that is divided by the global batch. The other pairings train with another learning rate, without an error.
"""

from __future__ import annotations

import ast
import json
import math
import os
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from components.trainer import foreign_input
from components.trainer.job import Job
from components.trainer.scaling_trial import WEIGHTS, Batch, Ratios, Spec, Trial, read_batches
from model_fn.strategies import make_strategy
from pipeline.config.distribution import Distribution, TrainStrategy
from pipeline.config.modules import find_arguments, find_module, is_project, is_source
from pipeline.errors import UserCodeError

MARKER = "scaling_probe.json"
BUILT_IN = "components.trainer.trainer_fn.trainer_fn"
_IN_STEP = ("mirrored", "central_storage", "multi_worker_mirrored", "tpu")
_REPLICAS = 2
# A wrong pairing gives 0.5 or 2; what dropout and batch normalisation give lies within.
_TOLERANCE = 4 / 3
# Where chance may have spoken, as with dropout, two more batches decide.
_TRIALS = 3
_EXACT = 0.01


def is_needed(job: Job) -> bool:
    """Tells whether a training has a loss of the user's, several replicas in step, and no verdict yet.

    Args:
        job: What to train.

    Returns:
        Whether to start a task that calls `run`.
    """
    train = job.settings.distribution.train
    several = train.replicas > 1 or train.strategy == "tpu"
    if not several and not (train.devices.cpu or train.devices.gpu):
        # No devices are all GPUs.
        several = len(tf.config.list_physical_devices("GPU")) > 1
    if train.strategy not in _IN_STEP or not several or tf.io.gfile.exists(_marker(job.training_dir)):
        return False
    if job.exec_properties.get("trainer_fn") == BUILT_IN:
        section = job.settings.trainer
        return section is not None and _may_be_model_fn(section.model or "")
    # A module file may have either function: the task finds out.
    return not job.exec_properties.get("run_fn")


def section(distribution: Distribution, replicas: int = _REPLICAS) -> TrainStrategy:
    """The strategy to try: of logical CPUs, whatever the devices and workers that train.

    Args:
        distribution: What was declared.
        replicas: In one process.
    """
    strategy = "central_storage" if distribution.train.strategy == "central_storage" else "mirrored"
    return TrainStrategy.parse_obj({"strategy": strategy, "devices": {"cpu": replicas}})


def run(
    make_spec: Callable[[], Spec], distribution: Distribution, strategy: tf.distribute.Strategy, training_dir: str
) -> None:
    """Trains a step under two replicas, and the same on one device, and leaves a verdict in the training folder.

    Args:
        make_spec: Calls the user's trainer_fn, and returns what it returns.
        distribution: What was declared.
        strategy: Of `section`.
        training_dir: The training folder; a restart finds the verdict there.

    Raises:
        UserCodeError: The update under several replicas is another one than on one device, or there is none.
    """
    folder = os.path.join(training_dir, "scaling_probe")
    trial = Trial(make_spec, strategy, make_strategy(section(distribution, 1)), folder)
    spec = make_spec()
    notes = []
    try:
        element_spec, batches = read_batches(spec, _TRIALS)
        if not foreign_input.shares_itself(spec["train_spec"].input_fn):
            foreign_input.check_divides(foreign_input.size_of(batches[0][0]), distribution.train.replicas)
            if distribution.train.worker_count > 1 and not _equal(read_batches(make_spec(), 1)[1][0], batches[0]):
                notes.append(_ORDER)
        ratios = trial.compare(element_spec, batches[0])
        if any(_is_wrong(ratio) and not _is_exact(ratio) for ratio in ratios.values()):
            others = [trial.compare(element_spec, batches[seed % len(batches)], seed) for seed in range(1, _TRIALS)]
            ratios = {
                key: statistics.median([each[key] for each in (ratios, *others) if key in each]) for key in ratios
            }
    finally:
        if tf.io.gfile.exists(folder):
            tf.io.gfile.rmtree(folder)
    if not ratios:
        notes.append("the first steps of training change no variable: whether its loss is scaled right is not known")
    _judge(ratios, distribution)
    _write(training_dir, ratios, notes)


def read_notes(training_dir: str) -> list[str]:
    """Reads what the user should know of a training that is not refused.

    Args:
        training_dir: The training folder.
    """
    if not tf.io.gfile.exists(_marker(training_dir)):
        return []
    with tf.io.gfile.GFile(_marker(training_dir)) as file:
        return json.loads(file.read())["notes"]


_ORDER = (
    "TrainSpec.input_fn makes other batches each time it is called, whatever RunConfig.tf_random_seed: the workers' "
    "parts of a batch will not be of one batch. Shuffle with tf.data, or take `input_context` and shard by yourself"
)


def _judge(ratios: Ratios, distribution: Distribution) -> None:
    """Refuses an update that is not the one of one device."""
    if not ratios:
        return
    (part, kind), ratio = max(ratios.items(), key=lambda item: _distance(item[1]))
    if not _is_wrong(ratio):
        return
    replicas = distribution.train.replicas
    where = f"of `{part}`" if kind == WEIGHTS else f"of `{part}` (the optimizer's `{kind}`)"
    what = f"under {_REPLICAS} replicas the update {where} is {ratio:.2f} times that of one device"
    if replicas != _REPLICAS:
        what += f" (the declared ones are {replicas})"
    if ratio < 1:
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


def _equal(one: Batch, other: Batch) -> bool:
    return all(np.array_equal(_plain(left), _plain(right)) for left, right in zip(one, other))


def _plain(value: Any) -> Any:
    if isinstance(value, (tf.compat.v1.SparseTensorValue, tf.compat.v1.ragged.RaggedTensorValue)):
        return value.values
    return value


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


def _write(training_dir: str, ratios: Ratios, told: list[str]) -> None:
    found = {f"{part} {kind}": ratio for (part, kind), ratio in ratios.items()}
    temporary = _marker(training_dir) + ".tmp"
    with tf.io.gfile.GFile(temporary, "w") as file:
        file.write(json.dumps({"replicas": _REPLICAS, "ratios": found, "notes": told}, indent=2) + "\n")
    tf.io.gfile.rename(temporary, _marker(training_dir), overwrite=True)


def _marker(training_dir: str) -> str:
    return os.path.join(training_dir, MARKER)
