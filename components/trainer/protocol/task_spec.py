"""What one task of a training is told."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Optional

CHIEF, WORKER, PS, EVALUATOR = "chief", "worker", "ps", "evaluator"
# Evaluates the last checkpoint and exports it, after a cluster that has no evaluator.
EXPORTER = "exporter"
# Tries the user's loss under several replicas, before anything is trained.
PROBE = "probe"
# sysexits.h's EX_TEMPFAIL: the exit code of a task that stopped by request, at a checkpoint.
STOPPED = 75
# Which GPUs a process sees, and in which order.
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
_GPU = re.compile(r"\d+|(GPU|MIG)-\S+", re.ASCII)


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """What one task is told.

    Args:
        type: `chief`, `worker`, `ps`, `evaluator`, `exporter` or `probe`.
        index: From 0, within the type.
        attempt: From 1; the task's files bear it.
        tf_config: Value of TF_CONFIG; empty where the task is alone.
        cpus: Cores that the task runs on; none are all.
        gpus: Which of the supervisor's GPUs the task sees, from 0; None leaves the environment as it is.
        threads: Of one TensorFlow op; None is TensorFlow's own choice.
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
    def evaluates(self) -> bool:
        """Does it evaluate and export."""
        return not self.in_cluster

    def save(self, path: str) -> None:
        """Writes the task_spec."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(dataclasses.asdict(self), file)

    @classmethod
    def load(cls, path: str) -> TaskSpec:
        """Reads what `save` wrote."""
        with open(path, encoding="utf-8") as file:
            values: dict[str, Any] = json.load(file)
        restored: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**restored)


def allotted_gpus(environment: Mapping[str, str]) -> Optional[tuple[str, ...]]:
    """The GPUs that a process was allotted by CUDA_VISIBLE_DEVICES.

    Args:
        environment: Of the process.

    Returns:
        Index, or UUID, of each, as CUDA reads them: up to the first that is none, such as -1. None where the variable
        is not set: all that there are.
    """
    text = environment.get(VISIBLE_GPUS)
    if text is None:
        return None
    return tuple(itertools.takewhile(_GPU.fullmatch, map(str.strip, text.split(","))))


def visible_gpus(gpus: Sequence[int], environment: Mapping[str, str]) -> str:
    """Writes CUDA_VISIBLE_DEVICES for a task, within an allotment.

    Args:
        gpus: As in the task_spec.
        environment: Of the task's process, as inherited from the supervisor.

    Returns:
        The variable's value. A GPU beyond the allotment is left out.
    """
    allotted = allotted_gpus(environment)
    if allotted is None:
        return ",".join(map(str, gpus))
    return ",".join(allotted[index] for index in gpus if index < len(allotted))


def ask_to_stop(path: str, step: int) -> None:
    """Tells all tasks to stop at a global step. The first word counts: tasks may have several supervisors.

    Args:
        path: The task_spec' `stop_file`.
        step: After which a checkpoint is written and training ends.
    """
    draft = f"{path}.{os.getpid()}"
    with open(draft, "w", encoding="utf-8") as file:
        file.write(str(step))
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        os.replace(draft, path)
    with contextlib.suppress(FileNotFoundError):
        os.remove(draft)


def asked_to_stop(path: str) -> Optional[int]:
    """The step to stop at.

    Args:
        path: The task_spec' `stop_file`.

    Returns:
        The step; None as long as nobody asked.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return int(file.read())
    except FileNotFoundError:
        return None
