"""The job of a training, a JSON file from the supervisor for its tasks, and the context of a task."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Optional

from tfx_estimator.components.trainer.protocol.events import ProgressWriter
from tfx_estimator.components.trainer.protocol.task_spec import TaskSpec
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.base.files import write_json
from tfx_estimator.pipeline.config.distribution import Distribution


@dataclasses.dataclass(frozen=True)
class Job:
    """A training, the same for each of its tasks.

    Args:
        inputs: The execution's input artifacts, in TFX's JSON.
        outputs: Likewise, its output artifacts.
        exec_properties: Those of `tfx.components.Trainer`.
        training_dir: Folder of checkpoints, events and logs.
        path: As `Settings.path`; see `task.paths`.
        exports: False for a tuner's trial, which is evaluated but exports no model.
    """

    inputs: str
    outputs: str
    exec_properties: dict[str, Any]
    training_dir: str
    settings: Settings = dataclasses.field(default_factory=Settings)
    path: str = ""
    exports: bool = True

    @property
    def exports_dir(self) -> str:
        """Folder for exports, with the layout of TFX's model artifact."""
        return os.path.join(self.training_dir, "exported")

    @property
    def evaluated_file(self) -> str:
        """File that marks the end of a job that exports no model."""
        return os.path.join(self.training_dir, "evaluated")

    def save(self, path: str) -> None:
        """Writes the job as JSON."""
        write_json(path, dataclasses.asdict(self))

    @classmethod
    def load(cls, path: str) -> Job:
        """Reads a job."""
        with open(path, encoding="utf-8") as file:
            return cls.of(json.load(file))

    @classmethod
    def of(cls, values: dict[str, Any]) -> Job:
        """Returns the job with these values."""
        return cls(**{**values, "settings": Settings.from_dict(values.get("settings", {}))})


@dataclasses.dataclass(frozen=True)
class TaskContext:
    """The context of one task.

    Args:
        tried_for: The declared distribution, if a dry run tries code for it on one device.
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
