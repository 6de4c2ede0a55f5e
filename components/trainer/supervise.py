"""Brings a job, its path and the supervisor together."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Optional

from tfx_estimator.components.trainer.cluster.plan import resolve_distribution
from tfx_estimator.components.trainer.cluster.tf_config import resolve
from tfx_estimator.components.trainer.protocol.job import Job
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.components.trainer.supervisor.outcome import Outcome
from tfx_estimator.components.trainer.supervisor.supervisor import Supervisor
from tfx_estimator.components.trainer.task import paths
from tfx_estimator.pipeline.base.ending import scratch
from tfx_estimator.pipeline.base.log import get_logger

logger = get_logger("trainer")


def supervise(job: Job, logs: str, enough: Optional[Callable[[], bool]] = None) -> Outcome:
    """Trains a job in supervised tasks.

    Args:
        logs: Local folder for the tasks' files.
        enough: Says that training has gone on long enough: see Supervisor.

    Raises:
        TrainingError: See Supervisor.
        UserCodeError: The user's code does not keep its contract.
        DeclarationError: TF_CONFIG describes another cluster than the declared one.
    """
    settings = Settings.from_dict(job.settings)
    # Once, from the cluster that is there: whatever counts tasks below, here or in a task, is right.
    settings = settings.with_distribution(resolve_distribution(settings.distribution, resolve(os.environ)))
    job = dataclasses.replace(job, settings=settings.to_dict())
    logger.info(f"training begins; the logs of its tasks: {logs}")
    traits = paths.traits_of(job, settings.distribution)
    with scratch.made() as temporary:
        return Supervisor(job, traits, paths.checkpoints_of(job), logs, temporary, enough).run()
