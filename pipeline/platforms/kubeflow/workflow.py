"""Compiles for Kubeflow Pipelines 1: an Argo Workflow."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import yaml
from kfp import dsl
from kubernetes import client
from tfx.orchestration.kubeflow import kubeflow_dag_runner
from tfx.orchestration.pipeline import Pipeline

from tfx_estimator.pipeline.base.environment import release_variables
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.runners import entry
from tfx_estimator.pipeline.user_source.pack import Packed

# TFX writes it at a step's end; its default lies in the root folder, where only root may write.
UI_METADATA = "/tmp/mlpipeline-ui-metadata.json"
# The time of compilation is left out, so that the same pipeline gives the same file.
_TIME = "pipelines.kubeflow.org/pipeline_compilation_time"
# Argo's words for it.
_ROOT = "{{inputs.parameters.pipeline-root}}"


def compile_workflow(
    pipeline: Pipeline, deploy: DeploySection, modules: Mapping[str, Packed], folder: str
) -> tuple[dict[str, Any], str]:
    """Compiles a pipeline.

    Args:
        deploy: Where it runs.
        modules: The user's own, by the step that imports them.
        folder: Where TFX's runner writes what it compiles.

    Returns:
        The Workflow; and the file that TFX's runner wrote, as of `pipeline_spec.compile_spec`.
    """

    def equip(step: dsl.ContainerOp) -> dsl.ContainerOp:
        if packed := modules.get(step.human_name):
            then = [*step.command, *step.arguments]
            step.command, step.arguments = [*entry.COMMAND], entry.arguments(entry.ROOT, _ROOT, packed, then)
        _equip(step, deploy)
        return step

    config = kubeflow_dag_runner.KubeflowDagRunnerConfig(
        tfx_image=deploy.image,
        metadata_ui_path=UI_METADATA,
        pipeline_operator_funcs=[*kubeflow_dag_runner.get_default_pipeline_operator_funcs(), equip],
    )
    # A declaration is often called as its pipeline is: TFX's command line writes into the user's own folder.
    name = f"{pipeline.pipeline_info.pipeline_name}.workflow.yaml"
    runner = kubeflow_dag_runner.KubeflowDagRunner(config=config, output_dir=folder, output_filename=name)
    runner.run(pipeline)
    path = os.path.join(runner._output_dir, runner._output_filename)
    with open(path, encoding="utf-8") as file:
        workflow = yaml.safe_load(file)
    workflow["metadata"]["annotations"].pop(_TIME, None)
    for template in workflow["spec"]["templates"]:
        if "container" in template:
            arguments = template["container"]["args"]
            place = arguments.index("--tfx_ir") + 1
            # The order of a map in a protocol buffer is not the same each time.
            arguments[place] = json.dumps(json.loads(arguments[place]), indent=1, sort_keys=True)
            if context := deploy.security_context.of_container():
                template["container"]["securityContext"] = context
    # This also covers Argo's own containers, which run as root by default.
    # Source: https://argo-workflows.readthedocs.io/en/latest/workflow-pod-security-context/.
    if context := deploy.security_context.of_pod():
        workflow["spec"]["securityContext"] = context
    if deploy.service_account:
        workflow["spec"]["serviceAccountName"] = deploy.service_account
    return workflow, path


def _equip(step: dsl.ContainerOp, deploy: DeploySection) -> None:
    # `step.name` is Argo's name, in lower case.
    node, container = deploy.step(step.human_name), step.container
    if node.cpu:
        container.set_cpu_limit(f"{round(node.cpu * 1000)}m").set_cpu_request(f"{round(node.cpu * 1000)}m")
    if node.memory_gb:
        memory = f"{round(node.memory_gb * 1000)}M"
        container.set_memory_limit(memory).set_memory_request(memory)
    if node.accelerator:
        container.add_resource_limit(node.accelerator, str(node.accelerators or 1))
    for name, value in (node.node_selector or {}).items():
        step.add_node_selector_constraint(name, value)
    for each in node.tolerations or ():
        step.add_toleration(client.V1Toleration(each.effect, each.key, each.operator, each.seconds, each.value))
    if node.retries:
        step.set_retry(node.retries, policy="Always")
    if node.timeout_seconds:
        step.set_timeout(node.timeout_seconds)
    for name, value in sorted({**release_variables(), **deploy.env}.items()):
        container.add_env_variable(client.V1EnvVar(name=name, value=value))
    for index, volume in enumerate(deploy.volumes):
        claim = client.V1PersistentVolumeClaimVolumeSource(claim_name=volume.claim, read_only=volume.read_only or None)
        _mount(step, f"volume-{index}", volume.path, volume.read_only, persistent_volume_claim=claim)
    for index, secret in enumerate(deploy.secrets):
        source = client.V1SecretVolumeSource(secret_name=secret.name)
        _mount(step, f"secret-{index}", secret.path, True, secret=source)
    for name, value in deploy.labels.items():
        step.add_pod_label(name, value)


def _mount(step: dsl.ContainerOp, name: str, path: str, read_only: bool, **source: Any) -> None:
    step.add_volume(client.V1Volume(name=name, **source))
    step.container.add_volume_mount(client.V1VolumeMount(name=name, mount_path=path, read_only=read_only or None))
