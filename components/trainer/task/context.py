"""What a training task is given: the same for every path."""

from __future__ import annotations

import dataclasses
from typing import Optional

from tfx_estimator.components.trainer.job import Job
from tfx_estimator.components.trainer.protocol.events import ProgressWriter
from tfx_estimator.components.trainer.protocol.task_spec import TaskSpec
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.config.distribution import Distribution


@dataclasses.dataclass(frozen=True)
class TaskContext:
    """What one task works with.

    Args:
        task: Which task of it this is.
        progress: Where to report.
        tried_for: The declared distribution, where a dry run tries code for it on one device.
    """

    job: Job
    task: TaskSpec
    progress: ProgressWriter
    tried_for: Optional[Distribution] = None

    @property
    def settings(self) -> Settings:
        """The Trainer's settings."""
        return self.job.settings

    @property
    def distribution(self) -> Distribution:
        """Strategies and the supervisor's contract."""
        return self.settings.distribution
