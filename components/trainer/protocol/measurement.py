"""What is measured of a training's tasks, and what each of them found."""

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
    """What to measure.

    Args:
        folder: Where each task leaves its measurement.
        warmup: Global steps between the moment when every task has done one and the beginning of the measurement.
        steps: Global steps that it lasts.
        cores: Logical CPUs that the tasks run on.
        trainers: Tasks that do steps.
        constant_input: Train on one batch that stays in memory, in place of what the input_fn reads.
    """

    folder: str
    warmup: int
    steps: int
    cores: Sequence[int]
    trainers: int = 1
    constant_input: bool = False

    @classmethod
    def of_environment(cls) -> Optional[Window]:
        """Returns what is asked for; None if nothing is."""
        text = os.environ.get(MEASURE)
        return cls(**json.loads(text)) if text else None

    def to_environment(self) -> str:
        """Returns the value of the variable."""
        return json.dumps(dataclasses.asdict(self))

    def edge(self, name: str) -> str:
        """Path of the file that appears when the chief begins, or ends, its measurement."""
        return os.path.join(self.folder, name)

    def tell_edge(self, name: str) -> None:
        """Says that the chief begins, or ends, its measurement."""
        pathlib.Path(self.edge(name)).touch()

    def tell_started(self, task: str) -> None:
        """Says that a task has done a step."""
        pathlib.Path(self.folder, f"{task}{_STARTED}").touch()

    def have_started(self) -> bool:
        """Has every task that trains done a step."""
        return sum(name.endswith(_STARTED) for name in os.listdir(self.folder)) >= self.trainers


@dataclasses.dataclass(frozen=True)
class TaskMeasurement:
    """What one task measured.

    Args:
        task: For example `chief-0`.
        steps: Global steps, of all workers together; 0 for a parameter server.
        wall: Seconds.
        cpu: CPU seconds of the process, user and system, all threads.
        busy: CPU seconds that the window's cores worked for anybody.
        peak_rss: Largest resident memory until then, start included, in bytes.
        pss: Resident memory at the end, what is shared counted in parts, in bytes.
        constant_input: Was the batch a constant one; False if it was asked for but the input_fn returns no data set.
        own_steps: Steps that this task did itself; all of `steps` if the tasks train in step.
        examples: That its model was fed in them, by all its replicas; None if that cannot be told from the batches.
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
        """Writes it, whole or not at all."""
        write_json(os.path.join(folder, f"{self.task}.json"), dataclasses.asdict(self))

    @classmethod
    def load_all(cls, folder: str) -> list[TaskMeasurement]:
        """Reads those that are there, by task."""
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
        found = []
        for name in names:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                found.append(cls(**json.load(file)))
        return found
