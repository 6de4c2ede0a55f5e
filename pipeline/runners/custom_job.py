"""Makes the Trainer of a compiled PipelineSpec train as a custom job of Vertex AI."""

from __future__ import annotations

from typing import Any, Optional

from tfx_estimator.components.trainer.custom_job.plan import HOME, PLAN_KEY, REPLICA, Plan, Pool
from tfx_estimator.pipeline.base import release
from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.runners import entry
from tfx_estimator.pipeline.user_source.pack import Packed

_EXECUTOR = "tfx_estimator.components.trainer.custom_job.executor.Executor"
_FLAG = "--executor_class_path"
# The default of Vertex AI.
_STANDARD = "standard"


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
    deploy = declaration.deploy or DeploySection()
    assert deploy.vertex
    machines = deploy.vertex.machines(declaration.trainer.distribution)
    command: list[str] = ["python", "-m", REPLICA]
    if modules:
        command = [*entry.COMMAND, *entry.arguments(entry.HOME, HOME, modules, command)]
    return Plan(
        project=deploy.project or "",
        region=deploy.region or "",
        name=f"{declaration.name}-trainer",
        image=deploy.image or "",
        pools=tuple(
            Pool(
                role,
                count,
                machine.machine_type,
                machine.accelerator,
                (machine.accelerators or 1) if machine.accelerator else 0,
                machine.disk_gb,
            )
            for role, (count, machine) in machines.items()
        ),
        command=tuple(command),
        env={**release.variables(), **deploy.env},
        labels=dict(deploy.labels),
        service_account=deploy.service_account,
        network=deploy.vertex.network,
        timeout_seconds=deploy.vertex.timeout_seconds,
        scheduling=None if deploy.vertex.scheduling == _STANDARD else deploy.vertex.scheduling.upper(),
    )
