"""Makes a training's job, declaration file and log folder, and supervises it."""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Optional

from tfx.dsl.io import fileio
from tfx.types import artifact_utils

from tfx_estimator.components.execution import Artifacts, unkeyed_property
from tfx_estimator.components.files import DECLARATION, write_whole
from tfx_estimator.components.trainer.arguments import Contract, check_function
from tfx_estimator.components.trainer.cluster.plan import resolve_distribution
from tfx_estimator.components.trainer.cluster.tf_config import resolve
from tfx_estimator.components.trainer.export import paths_in
from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.settings import OPERATION_KEY, SETTINGS_KEY, Settings
from tfx_estimator.components.trainer.supervisor.outcome import Outcome
from tfx_estimator.components.trainer.supervisor.supervisor import Supervisor
from tfx_estimator.components.trainer.task import paths
from tfx_estimator.components.trainer.task.paths import target_of
from tfx_estimator.pipeline.base.ending import scratch
from tfx_estimator.pipeline.base.errors import TfxEstimatorError
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.config.paths import is_address

logger = get_logger("trainer")

# Files in a log folder that are for the tasks of one process, and not for those of the next.
_OWN_FILES = ("stop*", "job*.json")


def make_job(
    inputs: Artifacts,
    outputs: Artifacts,
    exec_properties: dict[str, Any],
    settings: Settings,
    training_dir: str,
    exports: bool = True,
) -> Job:
    """Makes the job of a training."""
    # The job has the settings themselves in place of these two.
    others = {key: value for key, value in exec_properties.items() if key not in (SETTINGS_KEY, OPERATION_KEY)}
    job = Job(
        inputs=artifact_utils.jsonify_artifact_dict(inputs),
        outputs=artifact_utils.jsonify_artifact_dict(outputs),
        exec_properties=others,
        training_dir=training_dir,
        settings=settings,
        path=paths.name_of(exec_properties, settings),
        exports=exports,
    )
    if not settings.path:
        # Not checked by the constructor: the module was a RuntimeParameter, an address, or has `from x import *`.
        with target_of(exec_properties) as target:
            check_function(settings, Contract(job.path, target))
    return job


def supervise(job: Job, logs: str, enough: Optional[Callable[[], bool]] = None) -> Outcome:
    """Trains a job in supervised tasks.

    Args:
        logs: Local folder for the tasks' files.
        enough: See Supervisor.
    """
    # Once, so that supervisor and tasks agree on the numbers of workers and parameter servers.
    distribution = resolve_distribution(job.settings.distribution, resolve(os.environ))
    job = dataclasses.replace(job, settings=job.settings.with_trainer(distribution=distribution.dict()))
    logger.info(f"training begins; the logs of its tasks: {logs}")
    with scratch.made() as temporary:
        return Supervisor(job, logs, temporary, enough).run()


def read_settings(context: Any, exec_properties: Mapping[str, Any]) -> Settings:
    """Reads an execution's settings, including those that its driver blanked."""
    node = context.pipeline_node if context else None
    operation = unkeyed_property(node, exec_properties, OPERATION_KEY)
    return Settings.of({**exec_properties, OPERATION_KEY: operation})


def write_declaration(training_dir: str, settings: Settings) -> None:
    """Writes the declaration next to the checkpoints."""
    if settings.declaration is not None:
        text = json.dumps(settings.declaration, indent=2, sort_keys=True) + "\n"
        write_whole(os.path.join(training_dir, DECLARATION), text)


@contextlib.contextmanager
def logs_folder(training_dir: str) -> Iterator[str]:
    """Yields a local folder for the tasks' logs; copies it into a training folder that is not local."""
    in_training_dir = os.path.join(training_dir, "logs")
    if not is_address(training_dir):
        os.makedirs(in_training_dir, exist_ok=True)
        yield in_training_dir
        return
    was_there = fileio.exists(training_dir)
    with tempfile.TemporaryDirectory(prefix="tfx-estimator-") as local:
        for name in map(os.path.basename, paths_in(in_training_dir)):
            # The supervisor counts attempts by these names.
            if not _is_own(name):
                Path(local, name).touch()
        try:
            yield local
        except TfxEstimatorError as error:
            # The local folder will be removed.
            error.what, error.todo = (text.replace(local, in_training_dir) for text in (error.what, error.todo))
            raise
        finally:
            # The chief of a cluster may have published the folder meanwhile.
            if fileio.exists(training_dir) or not was_there:
                fileio.makedirs(in_training_dir)
                for path in filter(os.path.getsize, paths_in(local)):
                    if not _is_own(name := os.path.basename(path)):
                        fileio.copy(path, os.path.join(in_training_dir, name), overwrite=True)


def _is_own(name: str) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in _OWN_FILES)
