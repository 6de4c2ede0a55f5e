"""Makes the Trainer of a compiled PipelineSpec train as a custom job of Vertex AI."""

from __future__ import annotations

from typing import Any, Optional

from tfx_estimator.components.trainer.custom_job.plan import HOME, PLAN_KEY, REPLICA, ROLES, Plan
from tfx_estimator.pipeline.base.environment import release_variables
from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.config.vertex import Machine
from tfx_estimator.pipeline.runners import entry
from tfx_estimator.pipeline.user_source.pack import Packed

_EXECUTOR = "tfx_estimator.components.trainer.custom_job.executor.Executor"
_FLAG = "--executor_class_path"
# Strategies of scheduling: the service's default; and that the job waits for its machines.
_STANDARD, _QUEUED = "standard", "flex_start"


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
        command = [*entry.COMMAND, *entry.arguments(entry.HOME, HOME, modules, command)]
    variables = sorted({**release_variables(), **deploy.env}.items())
    container = {
        "image_uri": deploy.image or "",
        "command": command[:1],
        "args": command[1:],
        "env": [{"name": name, "value": value} for name, value in variables],
    }
    # The service does not restart replicas: the supervisors do, see max_restarts.
    scheduling: dict[str, Any] = {"restart_job_on_worker_restart": False}
    if vertex.timeout_seconds:
        scheduling["timeout"] = {"seconds": vertex.timeout_seconds}
    if vertex.scheduling != _STANDARD:
        scheduling["strategy"] = vertex.scheduling.upper()
    if vertex.scheduling == _QUEUED:
        # 0 is no limit of the wait for machines; the service's default is a day.
        scheduling["max_wait_duration"] = {"seconds": 0}
    spec: dict[str, Any] = {
        "worker_pool_specs": [_pool(count, machine, container) for count, machine in machines.values()],
        "scheduling": scheduling,
    }
    # Without an account replicas run as Vertex AI's Custom Code Service Agent.
    told = {"service_account": deploy.service_account, "network": vertex.network}
    spec.update({name: value for name, value in told.items() if value})
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
