"""Whether a training must be checked under several replicas first, and what the check found; imports no TensorFlow."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfx.dsl.io import fileio

from tfx_estimator.components.files import write_whole
from tfx_estimator.components.trainer.cluster.plan import gpu_count
from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.settings import BUILT_IN_TRAINER_FN
from tfx_estimator.pipeline.config.distribution import Strategy, TrainStrategy
from tfx_estimator.pipeline.config.known import expand
from tfx_estimator.pipeline.user_source.functions import argument_names, find_arguments, is_model_fn
from tfx_estimator.pipeline.user_source.modules import find_module, is_project

FILE = "replica_check.json"


def is_needed(job: Job) -> bool:
    """Tells whether a training has code of the user's, several replicas in step, and no verdict yet."""
    settings, distribution = job.settings, job.settings.distribution
    if not (trains_in_step(distribution.train) or has_replicas(distribution.eval)):
        return False
    if fileio.exists(_path(job.training_dir)):
        return False
    if job.exec_properties.get("trainer_fn") == BUILT_IN_TRAINER_FN:
        return settings.trainer is not None and may_be_model_fn(settings.trainer.model or "")
    return True


def trains_in_step(train: TrainStrategy) -> bool:
    """Tells whether several replicas add up their gradients in each step."""
    return train.synchronous and (train.replicas > 1 or train.traits.on_tpu or has_replicas(train))


def has_replicas(strategy: Strategy) -> bool:
    """Tells whether there are several replicas in one process; no declared devices are all GPUs."""
    return _devices(strategy) > 1


def replicas_in_step(train: TrainStrategy) -> int:
    """How many replicas take part in each step; 2 where only the strategy will know, as of a TPU."""
    return max(_devices(train) * train.worker_count, 2)


def _devices(strategy: Strategy) -> int:
    if not strategy.distributes:
        return 1
    return strategy.devices.count if strategy.devices.indices else max(gpu_count(), 1)


def write(training_dir: str, notes: list[str], batch: str = "", chance: Sequence[str] = ()) -> None:
    """Keeps what the user should know of a training that is not refused: a restart finds it.

    Args:
        chance: Of the notes, those that dropout explains.
    """
    found = {"notes": notes, "batch": batch, **({"chance": list(chance)} if chance else {})}
    write_whole(_path(training_dir), json.dumps(found, indent=2))


def read(training_dir: str) -> dict[str, Any]:
    """Reads what `write` wrote: `notes`, the warnings, `chance` and `batch`; nothing if there is no verdict yet."""
    if not fileio.exists(_path(training_dir)):
        return {}
    with fileio.open(_path(training_dir)) as file:
        return json.loads(file.read())


def notes(found: Mapping[str, Any], acknowledged: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yields each note that `read` has found, with the level that it is logged at."""
    known = found.get("chance", ()) if "dropout" in acknowledged else ()
    for note in found.get("notes", ()):
        yield note, logging.INFO if note in known else logging.WARNING


def _path(training_dir: str) -> str:
    return os.path.join(training_dir, FILE)


def may_be_model_fn(target: str) -> bool:
    """Tells whether `trainer.model` may be a whole model_fn: a network function's loss is the built-in one."""
    target = expand("trainer.model", target)
    module = find_module(target.partition(":")[0])
    if module is None or is_project(module):
        return False
    arguments = find_arguments(target)
    # What the text cannot tell is tried.
    return arguments is None or is_model_fn(argument_names(arguments))
