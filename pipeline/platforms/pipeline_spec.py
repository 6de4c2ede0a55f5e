"""Compiles to a PipelineSpec, for Vertex AI Pipelines and Kubeflow Pipelines 2."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.orchestration.data_types import RuntimeParameter
from tfx.orchestration.kubeflow.v2 import kubeflow_v2_dag_runner
from tfx.orchestration.pipeline import Pipeline

from tfx_estimator.components.baseline_finder import BaselineFinder
from tfx_estimator.components.trainer.settings import HOME_KEY
from tfx_estimator.pipeline.base.environment import release_variables
from tfx_estimator.pipeline.config.deploy import DeploySection, Node
from tfx_estimator.pipeline.platforms.kubeflow.adapt import ENTRY, add_home_parameter
from tfx_estimator.pipeline.platforms.registry import KUBEFLOW
from tfx_estimator.pipeline.platforms.rehearsal.job import read_spec
from tfx_estimator.pipeline.platforms.rows import Row, accelerator_of, amounts_of
from tfx_estimator.pipeline.platforms.rules import rules_of
from tfx_estimator.pipeline.platforms.vertex.custom_job import PLAN_KEY, Plan
from tfx_estimator.pipeline.runners import entry
from tfx_estimator.pipeline.user_source.pack import Packed

_Resources = pipeline_spec_pb2.PipelineDeploymentConfig.PipelineContainerSpec.ResourceSpec
EXECUTOR, TRAINER, _TUNER, _EVALUATOR = "{}_executor", "Trainer", "Tuner", "Evaluator"
# Kubeflow Pipelines 2 takes a missing value for 0. To Argo, the last one limits the total time of all tries, so 0 would
# mean no retry. A year is longer than any training.
_BACKOFF = {"backoffDuration": "0s", "backoffFactor": 2.0, "backoffMaxDuration": f"{365 * 24 * 3600}s"}
_HOME = f"{{{{$.inputs.parameters['{HOME_KEY}']}}}}"


def compile_spec(
    pipeline: Pipeline, deploy: DeploySection, target: str, home: str, modules: Mapping[str, Packed], folder: str
) -> tuple[dict[str, Any], str]:
    """Compiles a pipeline.

    Args:
        pipeline: With stock resolvers only.
        deploy: The section `deploy`.
        target: One of `registry.TARGETS`.
        home: The pipeline's folder; becomes a runtime parameter.
        modules: The user's own, by the step that imports them.
        folder: Output folder of TFX's runner.

    Returns:
        The PipelineJob as JSON; and the file that TFX's runner wrote, without the additions made here: TFX's CLI may
        have chosen its place.
    """
    step_of = rules_of(target).step
    for component in pipeline.components:
        if (
            isinstance(component, BaseComponent)
            and (resources := _resources(step_of(deploy, component.id))) is not None
        ):
            component.with_platform_config(resources)
    config = kubeflow_v2_dag_runner.KubeflowV2DagRunnerConfig(default_image=deploy.image, use_pipeline_spec_2_1=True)
    runner = kubeflow_v2_dag_runner.KubeflowV2DagRunner(config, folder, f"{pipeline.pipeline_info.pipeline_name}.json")
    job = runner.run(pipeline)
    spec = job["pipelineSpec"]
    for name, task in spec["root"]["dag"]["tasks"].items():
        container = spec["deploymentSpec"]["executors"][EXECUTOR.format(name)].get("container")
        if container is None:
            continue  # a resolver's
        if target == KUBEFLOW:
            container["command"] = ["python", "-m", ENTRY]
        if packed := modules.get(name):
            then = [*container["command"], *container["args"]]
            # Placeholders have to be in the arguments: not every service replaces them in a command.
            container.update(command=[*entry.COMMAND], args=entry.arguments(_HOME, packed, then))
        variables = {**release_variables(), **deploy.env}
        container["env"] = [{"name": key, "value": value} for key, value in sorted(variables.items())]
        for given in task.get("inputs", {}).get("parameters", {}).values():
            if source := given.get("taskOutputParameter"):
                # TFX adds `_task` to the producer's name.
                source["producerTask"] = source["producerTask"].removesuffix("_task")
        if retries := step_of(deploy, name).retries:
            task["retryPolicy"] = {"maxRetryCount": retries, **(_BACKOFF if target == KUBEFLOW else {})}
    set_defaults(job, pipeline)
    finders = {each.id for each in pipeline.components if isinstance(each, BaselineFinder)}
    for name in finders:
        # Its result depends on the models blessed since.
        del spec["root"]["dag"]["tasks"][name]["cachingOptions"]
    steps = {TRAINER, *modules, *({_TUNER} & spec["root"]["dag"]["tasks"].keys())}
    add_home_parameter(spec, job["runtimeConfig"], home, steps | finders | ({_EVALUATOR} if finders else set()))
    if deploy.labels:
        job["labels"] = {**job.get("labels", {}), **deploy.labels}
    # Validates the additions.
    json_format.ParseDict(job, pipeline_spec_pb2.PipelineJob())
    return job, os.path.join(runner._output_dir, runner._output_filename)


def rows(spec: dict[str, Any]) -> Iterator[Row]:
    """Yields the resources of a PipelineSpec's steps."""
    for task in read_spec(spec, {}).tasks:
        if (container := task.container) is None:
            continue  # a resolver runs nowhere
        wanted = container.get("resources", {})
        kind = wanted.get("accelerator", {})
        memory = wanted.get("memoryLimit")
        amounts = amounts_of(wanted.get("cpuLimit"), f"{memory:g} GB" if memory else "")
        yield Row(task.name, amounts, accelerator_of(kind.get("type"), kind.get("count")), container["image"])
        if plan := task.given("parameters").get(PLAN_KEY):
            for role, pool in Plan.from_json(plan["runtimeValue"]["constant"]).pools.items():
                kind = pool["machine_spec"]
                accelerator = accelerator_of(kind.get("accelerator_type"), kind.get("accelerator_count"))
                yield Row(f"  {pool['replica_count']} {role}", kind["machine_type"], accelerator, container["image"])


def set_defaults(job: dict[str, Any], pipeline: Pipeline) -> None:
    """Sets the defaults of runtime parameters, which TFX omits from a specification of version 2.1."""
    root = job["pipelineSpec"]["root"]
    for component in pipeline.components:
        for value in component.exec_properties.values():
            if isinstance(value, RuntimeParameter) and value.default is not None:
                root["inputDefinitions"]["parameters"][value.name]["defaultValue"] = value.default
                job["runtimeConfig"].setdefault("parameterValues", {}).setdefault(value.name, value.default)


def _resources(node: Node) -> Any:
    if not (node.cpu or node.memory_gb or node.accelerator):
        return None
    accelerator = None
    if node.accelerator:
        accelerator = _Resources.AcceleratorConfig(type=node.accelerator, count=node.accelerators or 1)
    return _Resources(cpu_limit=node.cpu or 0, memory_limit=node.memory_gb or 0, accelerator=accelerator)
