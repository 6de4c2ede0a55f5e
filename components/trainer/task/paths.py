"""The ways of training, each a folder beside this one and a line here.

What the supervisor asks of a path needs no TensorFlow; its task does, and is imported in the task's process alone.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.module_text import names_of_module
from tfx_estimator.components.trainer.protocol.traits import Checkpoints, PathTraits
from tfx_estimator.components.trainer.settings import ESTIMATOR, KERAS, KERAS_LOOP, RUN_FN, Settings
from tfx_estimator.components.trainer.task.context import Path
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.distribution import Distribution

_HERE = "tfx_estimator.components.trainer"


@dataclasses.dataclass(frozen=True)
class _Entry:
    """Where the parts of a path are: `module:name`.

    Args:
        traits: `f(distribution) -> PathTraits`.
        checkpoints: `Checkpoints`, made with the training folder.
        path: `Path`.
    """

    traits: str
    checkpoints: str
    path: str


_CHECKPOINTS = f"{_HERE}.estimator.checkpoints:TrainingCheckpoints"
_PATHS = {
    ESTIMATOR: _Entry(f"{_HERE}.estimator.traits:traits", _CHECKPOINTS, f"{_HERE}.estimator.path:EstimatorPath"),
    # A run_fn keeps what checkpoints it likes: an Estimator's are looked after all the same.
    KERAS: (_KERAS := _Entry(f"{_HERE}.keras.traits:traits", _CHECKPOINTS, f"{_HERE}.keras.path:KerasPath")),
    KERAS_LOOP: _KERAS,
    RUN_FN: _Entry(f"{_HERE}.run_fn.traits:traits", _CHECKPOINTS, f"{_HERE}.run_fn.path:RunFnPath"),
}


def name_of(exec_properties: dict[str, Any], settings: Settings) -> str:
    """Returns the path that an execution takes; of a module with both functions TFX's default, the run_fn.

    Args:
        settings: Of the Trainer; what they say comes first, and of that a declaration of a model.
    """
    if section := settings.built_in:
        return section.path
    if settings.path:
        return settings.path
    if exec_properties.get("trainer_fn") or exec_properties.get("run_fn"):
        return ESTIMATOR if exec_properties.get("trainer_fn") else RUN_FN
    names = names_of_module(exec_properties)
    found = names.functions | names.others
    # `from x import *` may bring either: what the module itself names comes first.
    if not (names.is_open or found & {"run_fn", "trainer_fn"}):
        raise UserCodeError(
            "the module file defines neither trainer_fn nor run_fn",
            expected="`def trainer_fn(fn_args, schema)` or `def run_fn(fn_args)`",
            todo="define one of them",
        )
    return ESTIMATOR if "trainer_fn" in found and "run_fn" not in found else RUN_FN


def traits_of(job: Job, distribution: Distribution) -> PathTraits:
    """Returns what the supervisor must know of a job's path."""
    return _load(_PATHS[job.path].traits)(distribution)


def checkpoints_of(job: Job) -> Checkpoints:
    """Returns the checkpoints in a job's training folder."""
    return _load(_PATHS[job.path].checkpoints)(job.training_dir)


def path_of(job: Job) -> Path:
    """Returns what trains a job; imports TensorFlow."""
    return _load(_PATHS[job.path].path)()


def _load(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
