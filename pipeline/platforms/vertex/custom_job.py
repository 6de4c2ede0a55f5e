"""The custom job of a training: planned when the pipeline is compiled, created when the step runs.

Source: https://cloud.google.com/vertex-ai/docs/reference/rest/v1/CustomJobSpec.
"""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Optional

from tfx_estimator.pipeline.base.environment import release_variables
from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.platforms.vertex.section import Machine
from tfx_estimator.pipeline.runners import entry
from tfx_estimator.pipeline.user_source.pack import Packed

# Property of the step: its Plan as JSON.
PLAN_KEY = "custom_job"
REPLICA, ROLES = "tfx_estimator.pipeline.platforms.vertex.replica", "--roles"
# Placeholder in the arguments for the pipeline's folder, which is known at submission.
HOME = "{home}"
# Label of a job: which step created it.
STEP_LABEL = "tfx_estimator_step"
_EXECUTOR = "tfx_estimator.pipeline.platforms.vertex.executor.Executor"
_FLAG = "--executor_class_path"
# Scheduling strategies: the service's default, and waiting for machines.
_STANDARD, _QUEUED = "standard", "flex_start"


@dataclass(frozen=True)
class Plan:
    """The custom job that the step creates.

    Args:
        job: The CustomJob as JSON, without the step's label and call folder; HOME stands for the pipeline's folder.
    """

    project: str
    region: str
    job: dict[str, Any]

    def to_json(self) -> str:
        """Returns the value of the step's property."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Parses the result of `to_json`."""
        return cls(**json.loads(text))

    @property
    def pools(self) -> dict[str, dict[str, Any]]:
        """The `worker_pool_specs` by role, the chief's first, none empty.

        The service itself always takes the third for parameter servers.
        """
        pools = self.job["job_spec"]["worker_pool_specs"]
        words = pools[0]["container_spec"]["args"]
        return dict(zip(words[words.index(ROLES) + 1].split(","), pools))

    def to_job(self, folder: str, home: str) -> dict[str, Any]:
        """Returns the CustomJob.

        Args:
            folder: Of the step's call.
        """
        job = copy.deepcopy(self.job)
        for pool in job["job_spec"]["worker_pool_specs"]:
            words = pool["container_spec"]["args"]
            pool["container_spec"]["args"] = [*(word.replace(HOME, home) for word in words), "--call", folder]
        job["labels"][STEP_LABEL] = step_of(folder)
        return job


def step_of(folder: str) -> str:
    """Returns the value of a step's label, equal for all its tries.

    Args:
        folder: Of the step's call.
    """
    return hashlib.sha256(folder.encode()).hexdigest()[:40]


def launch_from(spec: dict[str, Any], node: str, declaration: Declaration, modules: Optional[Packed]) -> None:
    """Makes a step create the job, in place of training in its own container.

    Args:
        declaration: With `deploy.vertex`.
    """
    plan = make_plan(declaration, modules)
    task = spec["root"]["dag"]["tasks"][node]
    component = spec["components"][task["componentRef"]["name"]]
    component["inputDefinitions"]["parameters"][PLAN_KEY] = {"parameterType": "STRING"}
    task["inputs"]["parameters"][PLAN_KEY] = {"runtimeValue": {"constant": plan.to_json()}}
    arguments = spec["deploymentSpec"]["executors"][component["executorLabel"]]["container"]["args"]
    arguments[arguments.index(_FLAG) + 1] = _EXECUTOR


def make_plan(declaration: Declaration, modules: Optional[Packed] = None) -> Plan:
    """Returns the plan of the job.

    Args:
        declaration: With `deploy.vertex`.
        modules: As of `launch_from`.
    """
    deploy = declaration.deploy
    assert deploy
    assert deploy.vertex
    vertex, machines = deploy.vertex, deploy.vertex.machines(declaration.trainer.distribution)
    command = ["python", "-m", REPLICA, ROLES, ",".join(machines)]
    if modules:
        command = [*entry.COMMAND, *entry.arguments(HOME, modules, command)]
    variables = sorted({**release_variables(), **deploy.env}.items())
    container = {
        "image_uri": deploy.image or "",
        "command": command[:1],
        "args": command[1:],
        "env": [{"name": name, "value": value} for name, value in variables],
    }
    # The supervisors restart tasks, see max_restarts, and not the service.
    scheduling: dict[str, Any] = {"restart_job_on_worker_restart": False}
    if vertex.timeout_seconds:
        scheduling["timeout"] = {"seconds": vertex.timeout_seconds}
    if vertex.scheduling != _STANDARD:
        scheduling["strategy"] = vertex.scheduling.upper()
    if vertex.scheduling == _QUEUED:
        # 0 waits for machines without limit; the service's default is a day.
        scheduling["max_wait_duration"] = {"seconds": 0}
    spec: dict[str, Any] = {
        "worker_pool_specs": [_pool(count, machine, container) for count, machine in machines.values()],
        "scheduling": scheduling,
    }
    # Without an account, replicas run as Vertex AI's Custom Code Service Agent.
    optional = {"service_account": deploy.service_account, "network": vertex.network}
    spec.update({name: value for name, value in optional.items() if value})
    job = {"display_name": f"{declaration.name}-trainer", "job_spec": spec, "labels": dict(deploy.labels)}
    return Plan(deploy.project or "", deploy.region or "", job)


def _pool(count: int, machine: Machine, container: dict[str, Any]) -> dict[str, Any]:
    kind: dict[str, Any] = {"machine_type": machine.machine_type}
    if machine.accelerator:
        kind.update(accelerator_type=machine.accelerator, accelerator_count=machine.accelerators or 1)
    spec = {"machine_spec": kind, "replica_count": count, "container_spec": container}
    if machine.disk_gb:
        spec["disk_spec"] = {"boot_disk_type": "pd-ssd", "boot_disk_size_gb": machine.disk_gb}
    return spec
