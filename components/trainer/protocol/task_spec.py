"""The specification of a training task, and the files that it shares with the supervisor."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Optional

from tfx_estimator.pipeline.base.files import write_json

CHIEF, WORKER, PS, EVALUATOR = "chief", "worker", "ps", "evaluator"
# Evaluates the last checkpoint and exports it, after a cluster without an evaluator.
EXPORTER = "exporter"
# Checks the user's loss under several replicas before training.
REPLICA_CHECK = "replica_check"
# Runs the user's code on synthetic examples before ingestion.
DRY_RUN = "dry_run"
# `Job.path` of a dry run that only builds a step and reports its cost.
COSTS = "costs"
# sysexits.h's EX_IOERR: the exit code of a task whose error the disk has no room for.
UNWRITTEN = 74


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """The specification of one task.

    Args:
        type: `chief`, `worker`, `ps`, `evaluator`, `exporter`, `replica_check` or `dry_run`.
        index: From 0, within the type.
        attempt: From 1; part of the names of the task's files.
        tf_config: Value of TF_CONFIG; empty if the task is alone.
        cpus: Cores that the task runs on; empty for all.
        gpus: Indices of the supervisor's GPUs that the task sees; None leaves the environment unchanged.
        threads: Intra-op threads; None for one per CPU that the task may use.
        supervisor_pid: The task ends with this process.
        stop_file: Appears when training is to stop; holds the global step to stop at.
        network: File descriptors of the namespaces that the task enters.
        local: True for a task of a cluster that the supervisor starts on this machine; all of those share its folder.
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
        """True for one of several tasks that train together."""
        return bool(self.tf_config) and self.type != EVALUATOR

    @property
    def trains(self) -> bool:
        """True if it does training steps."""
        return self.type in (CHIEF, WORKER)

    @property
    def place(self) -> int:
        """Its index among the tasks that train: 0 for the chief, 1 for worker-0; 0 for tasks that do not train."""
        return self.index + 1 if self.type == WORKER else 0

    @property
    def evaluates(self) -> bool:
        """True if it evaluates and exports."""
        return not self.in_cluster

    def save(self, path: str) -> None:
        """Writes the specification as JSON."""
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

    log = _file("log")  # stdout and stderr
    progress = _file("progress.jsonl")  # events
    alive = _file("alive")  # the heartbeat, touched every second
    task_spec = _file("task.json")  # the TaskSpec
    error = _file("error.json")  # the task's error, if it had time to write it
    ends = _file("ends")  # the stack of a task that ended without an error
    stacks = _file("stacks")  # the stack of a dry run, on request
    read = _file("read.jsonl")  # the files that the user's code has read: see `opened.noting`
