"""The measurement window of a training, and each task's measurement."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Optional

from tfx_estimator.pipeline.base.files import write_json

# The window, as JSON.
MEASURE = "TFX_ESTIMATOR_MEASURE"
_STARTED = ".started"


@dataclasses.dataclass(frozen=True)
class Window:
    """A window to measure.

    Args:
        folder: Where each task writes its measurement.
        warmup: Global steps between every task's first step and the window.
        steps: Global steps in the window.
        cores: Logical CPUs that the tasks run on.
        trainers: Number of tasks that train.
        constant_input: Train on one batch in memory instead of the input_fn's.
    """

    folder: str
    warmup: int
    steps: int
    cores: Sequence[int]
    trainers: int = 1
    constant_input: bool = False

    @classmethod
    def of_environment(cls) -> Optional[Window]:
        """Returns the window that the environment requests, if any."""
        text = os.environ.get(MEASURE)
        return cls(**json.loads(text)) if text else None

    def to_environment(self) -> str:
        """Returns the value of the variable."""
        return json.dumps(dataclasses.asdict(self))

    def edge(self, name: str) -> str:
        """Returns the path of the file that marks the beginning, or the end, of the chief's measurement."""
        return os.path.join(self.folder, name)

    def mark_edge(self, name: str) -> None:
        """Marks the beginning, or the end, of the chief's measurement."""
        pathlib.Path(self.edge(name)).touch()

    def mark_started(self, task: str) -> None:
        """Marks that a task has done a step."""
        pathlib.Path(self.folder, f"{task}{_STARTED}").touch()

    def have_started(self) -> bool:
        """True if every task that trains has done a step."""
        return sum(name.endswith(_STARTED) for name in os.listdir(self.folder)) >= self.trainers


@dataclasses.dataclass(frozen=True)
class TaskMeasurement:
    """One task's measurement.

    Args:
        task: For example `chief-0`.
        steps: Global steps of all workers; 0 for a parameter server.
        wall: Seconds.
        cpu: User and system seconds of all threads of the process.
        busy: CPU seconds of the window's cores, for any process.
        peak_rss: Peak resident memory since the process started, in bytes.
        pss: Proportional set size at the end, in bytes.
        constant_input: True if the batch was constant; false if the input_fn returned no dataset to take it from.
        own_steps: This task's own steps; all of `steps` if the tasks train synchronously.
        examples: Examples in these steps, over all its replicas; None if the batches do not show their number.
    """

    task: str
    steps: int
    wall: float
    cpu: float
    busy: float
    peak_rss: int
    pss: int
    constant_input: bool = False
    own_steps: int = 0
    examples: Optional[int] = None

    def save(self, folder: str) -> None:
        """Writes the measurement atomically."""
        write_json(os.path.join(folder, f"{self.task}.json"), dataclasses.asdict(self))

    @classmethod
    def load_all(cls, folder: str) -> list[TaskMeasurement]:
        """Reads all measurements, sorted by task."""
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
        measurements = []
        for name in names:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                measurements.append(cls(**json.load(file)))
        return measurements
