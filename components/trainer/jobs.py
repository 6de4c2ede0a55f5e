"""What a training is made of before it is supervised: its job, its declaration beside it, its folder of logs."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from tfx import types
from tfx.dsl.io import fileio
from tfx.types import artifact_utils

from tfx_estimator.components.files import write_whole
from tfx_estimator.components.trainer.balance import count_labels, with_weights
from tfx_estimator.components.trainer.best.keeper import is_declared
from tfx_estimator.components.trainer.contract import Contract
from tfx_estimator.components.trainer.distribution_argument import check_contract
from tfx_estimator.components.trainer.export import paths_in
from tfx_estimator.components.trainer.length import with_steps
from tfx_estimator.components.trainer.module_text import target_of
from tfx_estimator.components.trainer.protocol.job import Job
from tfx_estimator.components.trainer.runtime_arguments import check_profiled
from tfx_estimator.components.trainer.settings import OPERATION_KEY, RUN_FN, Settings
from tfx_estimator.components.trainer.task import paths
from tfx_estimator.components.trainer.warm_start_argument import check_begun
from tfx_estimator.components.unkeyed import unkeyed_property
from tfx_estimator.pipeline.base.errors import DeclarationError, TfxEstimatorError
from tfx_estimator.pipeline.config.paths import is_address

Artifacts = Mapping[str, list[types.Artifact]]
# In a folder of logs: what one process told its own tasks, which is no word to those of another one.
_TOLD = ("stop*", "job*.json")


def make_job(
    inputs: Artifacts,
    outputs: Artifacts,
    exec_properties: dict[str, Any],
    settings: Settings,
    training_dir: str,
    exports: bool = True,
) -> Job:
    """Makes the job of a training.

    Args:
        inputs: `examples`, and where given `schema`, `transform_graph`, `base_model`, `hyperparameters`.
        outputs: `model` and `model_run`.
        exec_properties: As of `tfx.components.Trainer`.
        exports: Is a model wanted at its end.

    Raises:
        DeclarationError: Its run_fn cannot do what is declared, and the constructor could not know.
        UserCodeError: The module cannot be read, or has no function to train.
    """
    job = Job(
        inputs=artifact_utils.jsonify_artifact_dict(dict(inputs)),
        outputs=artifact_utils.jsonify_artifact_dict(dict(outputs)),
        exec_properties=exec_properties,
        training_dir=training_dir,
        settings=settings.to_dict(),
        path=paths.name_of(exec_properties, settings),
        exports=exports,
    )
    if job.path == RUN_FN and is_declared(settings.trainer):
        raise DeclarationError(
            "trainer.keep_best and trainer.early_stopping are for a trainer_fn or a trainer.model: the module file "
            "has a run_fn, which trains, evaluates and saves by itself",
            expected="neither of them beside a run_fn",
            todo="remove them, and do it inside the run_fn",
        )
    if not settings.path:
        # The constructor could not know it: a RuntimeParameter, an address, `from x import *`.
        with target_of(exec_properties) as target:
            check_contract(settings.distribution, Contract(job.path, target))
        check_profiled(settings, job.path)
        check_begun(settings, job.path)
    return job


def read_settings(context: Any, exec_properties: Mapping[str, Any]) -> Settings:
    """Reads an execution's settings, those among them that its driver blanked.

    Args:
        context: Of the executor; None without one.
        exec_properties: What the executor was given.
    """
    node = context.pipeline_node if context else None
    operation = unkeyed_property(node, exec_properties, OPERATION_KEY)
    return Settings.of({**exec_properties, OPERATION_KEY: operation})


def with_counts(
    settings: Settings,
    exec_properties: dict[str, Any],
    examples: Sequence[types.Artifact],
    count: Optional[Callable[[], Mapping[int, int]]] = None,
) -> tuple[Settings, dict[str, Any]]:
    """Puts in what follows from the number of examples: steps of epochs, weights of balanced classes.

    Args:
        count: Tells their labels, where they are counted already; None counts them.

    Raises:
        DeclarationError: See `with_steps` and `with_weights`.
    """
    settings, exec_properties = with_steps(settings, exec_properties, examples)
    return with_weights(settings, count or (lambda: count_labels(examples))), exec_properties


def write_declaration(training_dir: str, settings: Settings) -> None:
    """Stores the declaration beside the checkpoints."""
    if settings.declaration is not None:
        text = json.dumps(settings.declaration, indent=2, sort_keys=True) + "\n"
        write_whole(os.path.join(training_dir, "declaration.json"), text)


@contextlib.contextmanager
def logs_folder(training_dir: str) -> Iterator[str]:
    """A local folder for the logs of the tasks; copied into the training folder where that is not local."""
    in_training_dir = os.path.join(training_dir, "logs")
    if not is_address(training_dir):
        os.makedirs(in_training_dir, exist_ok=True)
        yield in_training_dir
        return
    was_there = fileio.exists(training_dir)
    with tempfile.TemporaryDirectory(prefix="tfx-estimator-") as local:
        for name in map(os.path.basename, paths_in(in_training_dir)):
            # Attempts are counted by these names.
            if not _is_told(name):
                Path(local, name).touch()
        try:
            yield local
        except TfxEstimatorError as error:
            # The local ones go.
            error.what, error.todo = (text.replace(local, in_training_dir) for text in (error.what, error.todo))
            raise
        finally:
            # The chief of a cluster may have published the folder meanwhile, with the logs that there were.
            if fileio.exists(training_dir) or not was_there:
                fileio.makedirs(in_training_dir)
                for path in filter(os.path.getsize, paths_in(local)):
                    if not _is_told(name := os.path.basename(path)):
                        fileio.copy(path, os.path.join(in_training_dir, name), overwrite=True)


def _is_told(name: str) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in _TOLD)
