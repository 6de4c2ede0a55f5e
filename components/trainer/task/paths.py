"""The paths of training, each a module listed here.

Only a path's task imports TensorFlow, in the task's process; the supervisor's functions here do not.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib
import os
import tempfile
import zipfile
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tfx.dsl.io import fileio
from tfx.types.standard_component_specs import MODULE_FILE_KEY, MODULE_PATH_KEY

from tfx_estimator.components.trainer.job import Job, TaskContext
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, EVALUATOR, EXPORTER, PS, WORKER
from tfx_estimator.components.trainer.settings import ESTIMATOR, KERAS, KERAS_LOOP, RUN_FN, Settings
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.user_source.frames import is_users_module
from tfx_estimator.pipeline.user_source.modules import Names, defined_names

if TYPE_CHECKING:
    from tfx_estimator.components.trainer.estimator.checkpoints import TrainingCheckpoints

_HERE = "tfx_estimator.components.trainer"
_PATHS = {
    ESTIMATOR: f"{_HERE}.estimator.path",
    KERAS: f"{_HERE}.keras.path",
    KERAS_LOOP: f"{_HERE}.keras.path",
    RUN_FN: f"{_HERE}.run_fn",
}


@dataclasses.dataclass(frozen=True)
class PathTraits:
    """How a path behaves under a declared distribution.

    Args:
        exporter: Type of the task that exports the model: the chief, an evaluator, or an exporter started after the
            cluster.
        alone: Types of the tasks that are restarted alone; a failure of another type restarts all.
        serving: Types of the tasks that serve the chief until they are killed.
        synchronous: True if a cluster's tasks do each step together, and must stop at the same one.
        needs_check: True if the user's code is checked under several replicas before training.
    """

    exporter: str
    alone: frozenset[str] = frozenset()
    serving: frozenset[str] = frozenset({PS})
    synchronous: bool = False
    needs_check: bool = False


def name_of(exec_properties: dict[str, Any], settings: Settings) -> str:
    """Returns the path of an execution: a declared model's, the settings', or the one of the user's function.

    A module with both functions takes TFX's default, the run_fn.
    """
    if section := settings.built_in:
        return section.path
    if settings.path:
        return settings.path
    if exec_properties.get("trainer_fn") or exec_properties.get("run_fn"):
        return ESTIMATOR if exec_properties.get("trainer_fn") else RUN_FN
    names = _names_of_module(exec_properties)
    found = names.functions | names.others
    # `from x import *` may define either; names that the module defines itself take precedence.
    if not (names.is_open or found & {"run_fn", "trainer_fn"}):
        raise UserCodeError(
            "the module file defines neither trainer_fn nor run_fn",
            expected="`def trainer_fn(fn_args, schema)` or `def run_fn(fn_args)`",
            todo="define one of them",
        )
    return ESTIMATOR if "trainer_fn" in found and "run_fn" not in found else RUN_FN


def traits_of(job: Job, distribution: Distribution) -> PathTraits:
    """Returns the traits of a job's path for the supervisor.

    In a cluster, train_and_evaluate and the Keras paths evaluate and export only in an evaluator; without one, an
    exporter does so afterwards. A run_fn's chief saves the model itself.

    Parameter servers and their workers can rejoin a running cluster, except for the servers of TensorFlow 2's
    coordinator on the Keras paths; an evaluator is not part of the cluster. The chief cannot rejoin: the others would
    continue without checkpoints, and lose those steps. The coordinator's workers serve until they are killed, like
    parameter servers: training is done when the chief is.
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


def checkpoints_of(job: Job) -> TrainingCheckpoints:
    """Returns the checkpoints in a job's training folder, in the Estimator's format; a run_fn may write others."""
    return importlib.import_module(f"{_HERE}.estimator.checkpoints").TrainingCheckpoints(job.training_dir)


def path_of(job: Job) -> ModuleType:
    """Returns the module whose `run` executes a task of a job; imports TensorFlow."""
    return importlib.import_module(_PATHS[job.path])


def run(context: TaskContext) -> None:
    """Executes a task by its path, for code of TensorFlow 1 as that behaves."""
    tf1 = importlib.import_module("tfx_estimator.model_fn.bridge.tf1")
    path = path_of(context.job)
    with tf1.behaviour(is_users_module) if context.settings.section.tf1 else contextlib.nullcontext():
        path.run(context)


@contextlib.contextmanager
def target_of(exec_properties: dict[str, Any]) -> Iterator[str]:
    """Locates the source of an execution's function, for `fingerprint_source`.

    Yields:
        `package.module:function`; or a local module file, which may be a temporary copy from a wheel or a store.
    """
    if dotted := exec_properties.get("run_fn") or exec_properties.get("trainer_fn"):
        yield ":".join(str(dotted).rsplit(".", 1))
        return
    module, at, wheel = (exec_properties.get(MODULE_PATH_KEY) or "").partition("@")
    path = wheel or exec_properties.get(MODULE_FILE_KEY) or ""
    with tempfile.TemporaryDirectory(prefix="tfx-estimator-") as folder:
        if at:
            with fileio.open(wheel, "rb") as packed, zipfile.ZipFile(packed) as files:
                files.extractall(folder)
            path = os.path.join(folder, f"{module.replace('.', os.sep)}.py")
        elif is_address(path):
            fileio.copy(path, local := os.path.join(folder, os.path.basename(path)))
            path = local
        yield path


def _names_of_module(exec_properties: dict[str, Any]) -> Names:
    """Returns the names defined in a Trainer's module."""
    path = exec_properties.get(MODULE_FILE_KEY) or exec_properties.get(MODULE_PATH_KEY)
    try:
        with target_of(exec_properties) as local, open(local, "rb") as file:
            return defined_names(ast.parse(file.read()))
    except Exception as error:  # file systems have errors of their own
        raise UserCodeError(
            f"the module {path!r} cannot be read: {error}",
            expected="a Python file that defines trainer_fn or run_fn",
            todo="correct the Trainer's module_file",
        ) from error
