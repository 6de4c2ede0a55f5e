"""One training, as a JSON file that its supervisor writes and each of its tasks reads; and what a task works with."""

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
    """One training, as every task of it sees it.

    Args:
        inputs: The execution's input artifacts, as TFX writes them in JSON.
        outputs: The same for its outputs.
        exec_properties: As of `tfx.components.Trainer`.
        training_dir: Folder of checkpoints, events and logs.
        path: The way of training: see `task.paths`.
        exports: Is a model wanted at its end. Of a trial only the evaluation is wanted.
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
        """Where a task leaves what it exports, laid out as TFX's model artifact."""
        return os.path.join(self.training_dir, "exported")

    @property
    def evaluated_file(self) -> str:
        """What a task makes last, in the place of a model, where none is wanted."""
        return os.path.join(self.training_dir, "evaluated")

    def save(self, path: str) -> None:
        """Writes the job."""
        write_json(path, dataclasses.asdict(self))

    @classmethod
    def load(cls, path: str) -> Job:
        """Reads what `save` wrote."""
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
        return cls(**{**values, "settings": Settings.from_dict(values.get("settings", {}))})


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
