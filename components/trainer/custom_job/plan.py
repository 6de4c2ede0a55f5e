"""The custom job of a training: which replicas, on which machines, with which command.

Source: https://cloud.google.com/vertex-ai/docs/reference/rest/v1/CustomJobSpec.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

# Property of the step: JSON of its Plan.
PLAN_KEY = "custom_job"
REPLICA = "tfx_estimator.components.trainer.custom_job.replica"
# A placeholder in the command for the pipeline's folder, which is chosen at submission.
HOME = "{home}"
# A strategy of scheduling: the job waits for its machines.
_QUEUED = "FLEX_START"
# Label of a job: which step created it.
STEP_LABEL = "tfx_estimator_step"


@dataclass(frozen=True)
class Pool:
    """Replicas of one role.

    Args:
        role: chief, worker, ps or evaluator.
        machine_type: As `n1-standard-8`.
        accelerator: As `NVIDIA_TESLA_T4`; None for none.
        accelerators: In each machine.
        disk_gb: Of the boot disk; None is the service's own default.
    """

    role: str
    count: int
    machine_type: str
    accelerator: Optional[str] = None
    accelerators: int = 0
    disk_gb: Optional[int] = None


@dataclass(frozen=True)
class Plan:
    """All that the step knows of its job when the pipeline is compiled.

    Args:
        name: Shown by the service.
        image: Of each replica.
        pools: None of them empty; the chief's is first.
        command: Of each replica; HOME stands for the pipeline's folder.
        service_account: That the replicas run as; None is Vertex AI's Custom Code Service Agent.
        network: To peer with; None for none.
        timeout_seconds: Of the job; None is the service's own.
        scheduling: Where its machines come from, as the service calls it: SPOT, FLEX_START; None is its own, STANDARD.
    """

    project: str
    region: str
    name: str
    image: str
    pools: tuple[Pool, ...]
    command: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    service_account: Optional[str] = None
    network: Optional[str] = None
    timeout_seconds: Optional[int] = None
    scheduling: Optional[str] = None

    def to_json(self) -> str:
        """Returns the property."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Reads what `to_json` wrote."""
        values: dict[str, Any] = json.loads(text)
        values.update(pools=tuple(Pool(**pool) for pool in values["pools"]), command=tuple(values["command"]))
        return cls(**values)

    @property
    def roles(self) -> tuple[str, ...]:
        """Of the pools, in their order: the service itself takes the third for parameter servers, whatever it is."""
        return tuple(pool.role for pool in self.pools)

    def to_job(self, folder: str, home: str) -> dict[str, Any]:
        """Returns the CustomJob.

        Args:
            folder: Where the step's call lies.
        """
        words = [word.replace(HOME, home) for word in self.command]
        words += ["--call", folder, "--roles", ",".join(self.roles)]
        container = {
            "image_uri": self.image,
            "command": words[:1],
            "args": words[1:],
            "env": [{"name": name, "value": value} for name, value in sorted(self.env.items())],
        }
        spec: dict[str, Any] = {"worker_pool_specs": [_pool_spec(pool, container) for pool in self.pools]}
        # The service does not restart replicas: the supervisors do, see max_restarts.
        spec["scheduling"] = {"restart_job_on_worker_restart": False}
        if self.timeout_seconds:
            spec["scheduling"]["timeout"] = {"seconds": self.timeout_seconds}
        if self.scheduling:
            spec["scheduling"]["strategy"] = self.scheduling
        if self.scheduling == _QUEUED:
            # 0 is no limit of the wait for machines; the service's default is a day.
            spec["scheduling"]["max_wait_duration"] = {"seconds": 0}
        for name in ("service_account", "network"):
            if value := getattr(self, name):
                spec[name] = value
        return {"display_name": self.name, "job_spec": spec, "labels": {**self.labels, STEP_LABEL: step_of(folder)}}


def _pool_spec(pool: Pool, container: dict[str, Any]) -> dict[str, Any]:
    machine: dict[str, Any] = {"machine_type": pool.machine_type}
    if pool.accelerator:
        machine.update(accelerator_type=pool.accelerator, accelerator_count=pool.accelerators)
    spec = {"machine_spec": machine, "replica_count": pool.count, "container_spec": container}
    if pool.disk_gb:
        spec["disk_spec"] = {"boot_disk_type": "pd-ssd", "boot_disk_size_gb": pool.disk_gb}
    return spec


def step_of(folder: str) -> str:
    """Returns the label's value: the same for each try of a step.

    Args:
        folder: Where the step's call lies.
    """
    return hashlib.sha256(folder.encode()).hexdigest()[:40]


def replicas(pools: Sequence[dict[str, Any]]) -> list[tuple[int, int]]:
    """Returns the pool and the index in it of each replica of a CustomJob's `worker_pool_specs`."""
    return [(pool, index) for pool, spec in enumerate(pools) for index in range(spec["replica_count"])]
