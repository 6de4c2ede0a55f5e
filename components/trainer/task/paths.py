"""The ways of training, each a module and a line here.

What the supervisor asks of a path needs no TensorFlow; its task does, and is imported in the task's process alone.
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

from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, EVALUATOR, EXPORTER, PS, WORKER
from tfx_estimator.components.trainer.settings import ESTIMATOR, KERAS, KERAS_LOOP, RUN_FN, Settings
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.paths import is_address
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
        exporter: Type of the task that exports the model: one that trains, an evaluator, or a task of its own that is
            started after the cluster.
        alone: Types of the tasks that are started again alone; when another one fails, all are.
        serving: Types of the tasks that serve the chief, and never end by themselves.
        synchronous: Do the tasks of a cluster do each step together, so that they must stop at the same one.
        needs_check: Is the user's code tried under several replicas before it trains.
    """

    exporter: str
    alone: frozenset[str] = frozenset()
    serving: frozenset[str] = frozenset({PS})
    synchronous: bool = False
    needs_check: bool = False


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
    names = _names_of_module(exec_properties)
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


def checkpoints_of(job: Job) -> TrainingCheckpoints:
    """Returns the checkpoints in a job's training folder: a run_fn may keep others, an Estimator's are looked after."""
    return importlib.import_module(f"{_HERE}.estimator.checkpoints").TrainingCheckpoints(job.training_dir)


def path_of(job: Job) -> ModuleType:
    """Returns the module whose `run` does a task's part of a job; imports TensorFlow."""
    return importlib.import_module(_PATHS[job.path])


@contextlib.contextmanager
def target_of(exec_properties: dict[str, Any]) -> Iterator[str]:
    """Finds the text of an execution's function, as `fingerprint_source` takes it.

    Yields:
        `package.module:function`; or a module file, on this machine for as long as it is looked at: it may be packed
        into a wheel, or lie in a store.
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
    """Returns the names that a Trainer's module defines."""
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
