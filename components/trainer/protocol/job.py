"""What the supervisor hands to a task, as a JSON file."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

from tfx_estimator.pipeline.base.files import write_json

# This function trains a declaration's own network or model_fn on the Estimator path.
BUILT_IN_TRAINER_FN = "tfx_estimator.components.trainer.estimator.trainer_fn.trainer_fn"
# The same on the Keras paths; TFX's Trainer must be given some function.
BUILT_IN_RUN_FN = "tfx_estimator.components.trainer.keras.path.KerasPath"
# Path of a dry run's job that only builds a step, and tells what it costs.
COSTS = "costs"


@dataclasses.dataclass(frozen=True)
class Job:
    """One training, as every task of it sees it.

    Args:
        inputs: The execution's input artifacts, as TFX writes them in JSON.
        outputs: The same for its outputs.
        training_dir: Folder of checkpoints, events and logs.
        settings: The Trainer's settings, as `Settings.to_dict` writes them.
        path: The way of training: see `task.paths`.
        exports: Is a model wanted at its end. Of a trial only the evaluation is wanted.
    """

    inputs: str
    outputs: str
    exec_properties: dict[str, Any]
    training_dir: str
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
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
            return cls(**json.load(file))


@dataclasses.dataclass(frozen=True)
class TaskFiles:
    """The files of one attempt of one task, in a local folder.

    Args:
        task: Type and index, for example `chief-0`.
        attempt: From 1.
    """

    folder: str
    task: str
    attempt: int

    def _path(self, suffix: str) -> str:
        return os.path.join(self.folder, f"{self.task}.attempt-{self.attempt}.{suffix}")

    @property
    def log(self) -> str:
        """All that the task printed."""
        return self._path("log")

    @property
    def progress(self) -> str:
        """The task's events."""
        return self._path("progress.jsonl")

    @property
    def alive(self) -> str:
        """Touched every second as long as the task's interpreter runs."""
        return self._path("alive")

    @property
    def task_spec(self) -> str:
        """What the task is told: see TaskSpec."""
        return self._path("task.json")

    @property
    def error(self) -> str:
        """The task's own error, if it had time to write it."""
        return self._path("error.json")

    @property
    def ends(self) -> str:
        """The stack of a task that ended without an error of its own."""
        return self._path("ends")

    @property
    def stacks(self) -> str:
        """The stack of a dry run, when it is asked for."""
        return self._path("stacks")
