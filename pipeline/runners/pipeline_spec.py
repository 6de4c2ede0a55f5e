"""Compiles for the targets of a PipelineSpec: Vertex AI Pipelines, and Kubeflow Pipelines 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.orchestration.data_types import RuntimeParameter
from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner
from tfx.orchestration.pipeline import Pipeline

from tfx_estimator.pipeline.config.deploy import DeploySection

# What a container of either starts.
COMMAND = tuple(kubeflow_v2_dag_runner.KUBEFLOW_TFX_CMD)

_Resources = pipeline_spec_pb2.PipelineDeploymentConfig.PipelineContainerSpec.ResourceSpec
_EXECUTOR = "{}_executor"


def compile_spec(pipeline: Pipeline, deploy: DeploySection, command: Sequence[str]) -> dict[str, Any]:
    """Compiles a pipeline.

    Args:
        pipeline: With stock resolvers only.
        deploy: Where it runs.
        command: Of each container.

    Returns:
        A PipelineJob, as JSON has it.
    """
    for component in pipeline.components:
        if isinstance(component, BaseComponent) and (resources := _resources(deploy, component.id)) is not None:
            component.with_platform_config(resources)
    config = kubeflow_v2_dag_runner.KubeflowV2DagRunnerConfig(
        default_image=deploy.image, default_commands=list(command), use_pipeline_spec_2_1=True
    )
    job = kubeflow_v2_dag_runner.KubeflowV2DagRunner(config).run(pipeline, write_out=False)
    spec = job["pipelineSpec"]
    for name, task in spec["root"]["dag"]["tasks"].items():
        container = spec["deploymentSpec"]["executors"][_EXECUTOR.format(name)].get("container")
        if container is None:
            continue  # a resolver's
        if deploy.env:
            container["env"] = [{"name": key, "value": value} for key, value in sorted(deploy.env.items())]
        if retries := deploy.nodes.of(name).retries:
            task["retryPolicy"] = {"maxRetryCount": retries}
    _set_defaults(job, pipeline)
    if deploy.labels:
        job["labels"] = {**job.get("labels", {}), **deploy.labels}
    # What TFX does not write itself must be right all the same.
    json_format.ParseDict(job, pipeline_spec_pb2.PipelineJob())
    return job


def kubernetes_platform(job: dict[str, Any], deploy: DeploySection) -> dict[str, Any]:
    """Returns what a PipelineSpec has no words for, as of kfp-kubernetes: volumes, secrets and labels of the pods.

    Args:
        job: What `compile_spec` returned.
        deploy: Where it runs.

    Returns:
        The second document of a compiled pipeline; empty if there is nothing to say.

    Source: https://github.com/kubeflow/pipelines/blob/master/kubernetes_platform/proto/kubernetes_executor_config.proto.
    """
    told: dict[str, Any] = {}
    if deploy.volumes:
        told["pvcMount"] = [{"constant": each.claim, "mountPath": each.path} for each in deploy.volumes]
    if deploy.secrets:
        told["secretAsVolume"] = [{"secretName": each.name, "mountPath": each.path} for each in deploy.secrets]
    if deploy.labels:
        told["podMetadata"] = {"labels": dict(deploy.labels)}
    if not told:
        return {}
    executors = job["pipelineSpec"]["deploymentSpec"]["executors"]
    containers = [name for name, executor in executors.items() if "container" in executor]
    return {"platforms": {"kubernetes": {"deploymentSpec": {"executors": dict.fromkeys(sorted(containers), told)}}}}


def _set_defaults(job: dict[str, Any], pipeline: Pipeline) -> None:
    """Of runtime parameters: TFX leaves them out of a specification of version 2.1."""
    root = job["pipelineSpec"]["root"]
    for component in pipeline.components:
        for value in component.exec_properties.values():
            if isinstance(value, RuntimeParameter):
                root["inputDefinitions"]["parameters"][value.name]["defaultValue"] = value.default
                job["runtimeConfig"].setdefault("parameterValues", {})[value.name] = value.default


def _resources(deploy: DeploySection, node_id: str) -> Any:
    node = deploy.nodes.of(node_id)
    if not (node.cpu or node.memory_gb or node.accelerator):
        return None
    accelerator = None
    if node.accelerator:
        accelerator = _Resources.AcceleratorConfig(type=node.accelerator, count=node.accelerators or 1)
    return _Resources(cpu_limit=node.cpu or 0, memory_limit=node.memory_gb or 0, accelerator=accelerator)
