"""The ways of training, each a module and a line here.

What the supervisor asks of a path needs no TensorFlow; its task does, and is imported in the task's process alone.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.module_text import names_of_module
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, EVALUATOR, EXPORTER, PS, WORKER
from tfx_estimator.components.trainer.protocol.traits import Checkpoints, PathTraits
from tfx_estimator.components.trainer.settings import ESTIMATOR, KERAS, KERAS_LOOP, RUN_FN, Settings
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.distribution import Distribution

_HERE = "tfx_estimator.components.trainer"
_PATHS = {
    ESTIMATOR: f"{_HERE}.estimator.path",
    KERAS: f"{_HERE}.keras.path",
    KERAS_LOOP: f"{_HERE}.keras.path",
    RUN_FN: f"{_HERE}.run_fn",
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
    """Returns what the supervisor must know of a job's path.

    In a cluster train_and_evaluate, and with it the Keras paths, neither evaluates nor exports, but in an evaluator:
    without one, a task of its own does so afterwards. A run_fn's own chief saves the model.

    Parameter servers and their workers are taken back into a running cluster, but for the servers of TensorFlow 2's
    coordinator on the Keras paths; an evaluator is in none. The chief is not taken back: the others would go on without
    checkpoints, and then lose what they did meanwhile. The coordinator's workers serve until they are ended, as
    parameter servers do: all is done when the chief is.
    """
    train, path = distribution.train, job.path
    needs_check = path == ESTIMATOR
    if not train.is_cluster:
        return PathTraits(exporter=CHIEF, needs_check=needs_check)
    alone = set() if path == RUN_FN else {EVALUATOR}
    if train.asynchronous:
        alone |= {WORKER} if path in (KERAS, KERAS_LOOP) else {WORKER, PS}
    return PathTraits(
        exporter=CHIEF if path == RUN_FN else EVALUATOR if distribution.evaluator else EXPORTER,
        alone=frozenset(alone),
        serving=frozenset({WORKER, PS} if train.asynchronous and path != ESTIMATOR else {PS}),
        synchronous=train.is_collective,
        needs_check=needs_check,
    )


def checkpoints_of(job: Job) -> Checkpoints:
    """Returns the checkpoints in a job's training folder: a run_fn may keep others, an Estimator's are looked after."""
    return importlib.import_module(f"{_HERE}.estimator.checkpoints").TrainingCheckpoints(job.training_dir)


def path_of(job: Job) -> ModuleType:
    """Returns the module whose `run` does a task's part of a job; imports TensorFlow."""
    return importlib.import_module(_PATHS[job.path])
