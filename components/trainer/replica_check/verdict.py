"""Decides if a training needs the replica check, and keeps its verdict; imports no TensorFlow."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfx_estimator.components.files import read_json, write_whole
from tfx_estimator.components.trainer.cluster.plan import gpu_count
from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.settings import BUILT_IN_TRAINER_FN
from tfx_estimator.pipeline.config.distribution import Strategy, TrainStrategy
from tfx_estimator.pipeline.config.known import expand
from tfx_estimator.pipeline.user_source.functions import argument_names, find_arguments, is_model_fn
from tfx_estimator.pipeline.user_source.modules import find_module, is_project

FILE = "replica_check.json"


def is_needed(job: Job) -> bool:
    """Returns True for user code with several synchronous replicas and no verdict yet."""
    settings, distribution = job.settings, job.settings.distribution
    if not (trains_in_step(distribution.train) or has_replicas(distribution.eval)):
        return False
    if read(job.training_dir):
        return False
    if job.exec_properties.get("trainer_fn") == BUILT_IN_TRAINER_FN:
        return settings.trainer is not None and may_be_model_fn(settings.trainer.model or "")
    return True


def trains_in_step(train: TrainStrategy) -> bool:
    """Returns True if several replicas sum their gradients in each step."""
    return train.synchronous and (train.replicas > 1 or train.traits.on_tpu or has_replicas(train))


def has_replicas(strategy: Strategy) -> bool:
    """Returns True if one process has several replicas; without declared devices they are all GPUs."""
    return _devices(strategy) > 1


def replicas_in_step(train: TrainStrategy) -> int:
    """Returns the number of synchronous replicas; 2 if only the strategy will know, as on a TPU."""
    return max(_devices(train) * train.worker_count, 2)


def _devices(strategy: Strategy) -> int:
    if not strategy.distributes:
        return 1
    return strategy.devices.count if strategy.devices.indices else max(gpu_count(), 1)


def write(training_dir: str, notes: list[str], batch: str = "", chance: Sequence[str] = ()) -> None:
    """Writes the verdict of an accepted training, for a restart.

    Args:
        chance: The notes that dropout may explain.
    """
    found = {"notes": notes, "batch": batch, **({"chance": list(chance)} if chance else {})}
    write_whole(_path(training_dir), json.dumps(found, indent=2))


def read(training_dir: str) -> dict[str, Any]:
    """Reads the verdict: the warnings `notes`, `chance` and `batch`; empty if there is none yet."""
    return read_json(_path(training_dir)) or {}


def notes(found: Mapping[str, Any], acknowledged: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yields each note of a verdict, with its log level."""
    known = found.get("chance", ()) if "dropout" in acknowledged else ()
    for note in found.get("notes", ()):
        yield note, logging.INFO if note in known else logging.WARNING


def _path(training_dir: str) -> str:
    return os.path.join(training_dir, FILE)


def may_be_model_fn(target: str) -> bool:
    """Returns True if `trainer.model` may be a model_fn; a network function needs no check: its loss is built in."""
    target = expand("trainer.model", target)
    module = find_module(target.partition(":")[0])
    if module is None or is_project(module):
        return False
    arguments = find_arguments(target)
    # If the source does not tell, it is tried.
    return arguments is None or is_model_fn(argument_names(arguments))
