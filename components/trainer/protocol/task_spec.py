"""What one task of a training is told, and the files that it and the supervisor tell each other by."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Optional

from tfx_estimator.pipeline.base.files import write_json

CHIEF, WORKER, PS, EVALUATOR = "chief", "worker", "ps", "evaluator"
# Evaluates the last checkpoint and exports it, after a cluster that has no evaluator.
EXPORTER = "exporter"
# Tries the user's loss under several replicas, before anything is trained.
REPLICA_CHECK = "replica_check"
# Tries the user's code on made-up examples, before any are ingested.
DRY_RUN = "dry_run"
# Path of a dry run's job that only builds a step, and tells what it costs.
COSTS = "costs"


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """What one task is told.

    Args:
        type: `chief`, `worker`, `ps`, `evaluator`, `exporter`, `replica_check` or `dry_run`.
        index: From 0, within the type.
        attempt: From 1; the task's files bear it.
        tf_config: Value of TF_CONFIG; empty if the task is alone.
        cpus: Cores that the task runs on; none are all.
        gpus: Which of the supervisor's GPUs the task sees, from 0; None leaves the environment as it is.
        threads: Of one TensorFlow op; None is one for each CPU that the task may use.
        supervisor_pid: Process whose death ends the task.
        stop_file: Appears when training shall stop; holds the global step to stop at.
        network: Descriptors of the namespaces that the task enters.
        local: Is it a task of a cluster that the supervisor starts on this machine; all of those share its folder.
    """

    type: str
    index: int
    attempt: int
    tf_config: str = ""
    cpus: tuple[int, ...] = ()
    gpus: Optional[tuple[int, ...]] = None
    threads: Optional[int] = None
    supervisor_pid: int = 0
    stop_file: str = ""
    network: tuple[int, ...] = ()
    local: bool = False

    @property
    def name(self) -> str:
        """For example `worker-1`."""
        return f"{self.type}-{self.index}"

    @property
    def in_cluster(self) -> bool:
        """Is it one of several tasks that train together."""
        return bool(self.tf_config) and self.type != EVALUATOR

    @property
    def trains(self) -> bool:
        """Does it do training steps."""
        return self.type in (CHIEF, WORKER)

    @property
    def place(self) -> int:
        """Which of those that train it is: the chief is 0, and worker-0 is 1. It is 0 for all others, too."""
        return self.index + 1 if self.type == WORKER else 0

    @property
    def evaluates(self) -> bool:
        """Does it evaluate and export."""
        return not self.in_cluster

    def save(self, path: str) -> None:
        """Writes it as JSON."""
        write_json(path, dataclasses.asdict(self))

    @classmethod
    def load(cls, path: str) -> TaskSpec:
        """Reads what `save` wrote."""
        with open(path, encoding="utf-8") as file:
            values: dict[str, Any] = json.load(file)
        restored: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**restored)


def _file(suffix: str) -> Any:
    return property(lambda files: os.path.join(files.folder, f"{files.task}.attempt-{files.attempt}.{suffix}"))


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

    log = _file("log")  # all that the task printed
    progress = _file("progress.jsonl")  # its events
    alive = _file("alive")  # touched every second as long as its interpreter runs
    task_spec = _file("task.json")  # what it is told: see TaskSpec
    error = _file("error.json")  # its own error, if it had time to write it
    ends = _file("ends")  # the stack of one that ended without an error of its own
    stacks = _file("stacks")  # the stack of a dry run, when it is asked for
