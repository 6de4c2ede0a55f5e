"""The Trainer's parameter `training_root`: where the training folders of all jobs of a pipeline lie."""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Optional

from absl import logging

from tfx_estimator.components.in_python import TRAINER, Argument, plain
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.platforms.registry import RUNNER_OF_JOBS


def with_training_root(settings: Settings, given: Optional[str]) -> Settings:
    """Returns the settings with what a Trainer is given; says so where the next job would not find its checkpoints."""
    if given is None:
        if settings.declaration is None and not settings.training_root and _is_compiled_for_jobs():
            logging.warning(
                "Trainer: each job of a service has a folder of its own, so that a job after one that was killed would "
                "begin at step 0. Trainer(training_root=...), a folder that all jobs of the pipeline share, has it go "
                "on from the last checkpoint; with Pipeline(enable_cache=True), for its examples must be the same ones."
            )
        return settings
    argument = Argument(("training_root",), TRAINER, '"gs://bucket/trainings"', "give the path of a folder")
    root = plain(os.fspath(given) if isinstance(given, os.PathLike) else given, argument)
    if not isinstance(root, str) or not root.strip():
        raise argument.not_plain(given)
    return dataclasses.replace(settings, training_root=root if is_address(root) else os.path.abspath(root))


def _is_compiled_for_jobs() -> bool:
    """Tells whether code that is at work now, such as the caller's script, names the runner of such a service."""
    frame = sys._getframe()
    while frame is not None and RUNNER_OF_JOBS not in frame.f_code.co_names:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None
