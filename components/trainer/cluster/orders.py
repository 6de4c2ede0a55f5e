"""What one task of a training is told."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Optional

CHIEF, WORKER, PS, EVALUATOR = "chief", "worker", "ps", "evaluator"
# Evaluates the last checkpoint and exports it, after a cluster that has no evaluator.
EXPORTER = "exporter"
# Tries the user's loss under several replicas, before anything is trained.
PROBE = "probe"


@dataclasses.dataclass(frozen=True)
class Orders:
    """What one task is told.

    Args:
        type: `chief`, `worker`, `ps`, `evaluator`, `exporter` or `probe`.
        index: From 0, within the type.
        attempt: From 1; the task's files bear it.
        tf_config: Value of TF_CONFIG; empty where the task is alone.
        cpus: Cores that the task runs on; none are all.
        gpus: GPUs that the task sees; none are all.
        threads: Of one TensorFlow op; None is TensorFlow's own choice.
        supervisor_pid: Process whose death ends the task.
        stop_file: Appears when training shall stop; holds the global step to stop at.
        network: Descriptors of the namespaces that the task enters.
    """

    type: str
    index: int
    attempt: int
    tf_config: str = ""
    cpus: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    threads: Optional[int] = None
    supervisor_pid: int = 0
    stop_file: str = ""
    network: tuple[int, ...] = ()

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
        """Writes the orders."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(dataclasses.asdict(self), file)

    @classmethod
    def load(cls, path: str) -> Orders:
        """Reads what `save` wrote."""
        with open(path, encoding="utf-8") as file:
            values: dict[str, Any] = json.load(file)
        restored: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**restored)


def ask_to_stop(path: str, step: int) -> None:
    """Tells all tasks to stop at a global step.

    Args:
        path: The orders' `stop_file`.
        step: After which a checkpoint is written and training ends.
    """
    with open(f"{path}.tmp", "w", encoding="utf-8") as file:
        file.write(str(step))
    os.replace(f"{path}.tmp", path)


def asked_to_stop(path: str) -> Optional[int]:
    """The step to stop at.

    Args:
        path: The orders' `stop_file`.

    Returns:
        The step; None as long as nobody asked.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return int(file.read())
    except FileNotFoundError:
        return None
