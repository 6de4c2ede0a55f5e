"""Brings a job, its path and the supervisor together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional

from tfx_estimator.components.trainer.protocol.job import Job
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.components.trainer.supervisor.outcome import Outcome
from tfx_estimator.components.trainer.supervisor.supervisor import Supervisor
from tfx_estimator.components.trainer.task import paths


def supervise(job: Job, logs: str, enough: Optional[Callable[[], bool]] = None) -> Outcome:
    """Trains a job in supervised tasks.

    Args:
        job: What to train.
        logs: Local folder for the tasks' files.
        enough: Says that training has gone on long enough: see Supervisor.

    Returns:
        What the training came to.

    Raises:
        TrainingError: See Supervisor.
        UserCodeError: The user's code does not keep its contract.
    """
    traits = paths.traits_of(job, Settings.from_dict(job.settings).distribution)
    return Supervisor(job, traits, paths.checkpoints_of(job), logs, enough).run()
