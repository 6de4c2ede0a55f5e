"""Compiles for Kubeflow Pipelines 2: a PipelineSpec, and its Kubernetes platform spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfx.orchestration.pipeline import Pipeline

from tfx_estimator.components.trainer.settings import OPERATION_KEY, SETTINGS_KEY, Settings
from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.platforms import pipeline_spec
from tfx_estimator.pipeline.platforms.kubeflow.adapt import unwrapped
from tfx_estimator.pipeline.platforms.kubeflow.pods import pod_of
from tfx_estimator.pipeline.platforms.registry import TRAINJOB
from tfx_estimator.pipeline.platforms.rehearsal.job import Task, read_spec
from tfx_estimator.pipeline.platforms.rows import Row
from tfx_estimator.pipeline.platforms.training_jobs import compile as training_jobs
from tfx_estimator.pipeline.platforms.training_jobs.manifest import make_manifests
from tfx_estimator.pipeline.user_source.pack import Packed


def compile_pipeline(
    pipeline: Pipeline, declaration: Declaration, target: str, home: str, modules: Mapping[str, Packed], folder: str
) -> tuple[list[dict[str, Any]], str]:
    """See `pipeline_spec.compile_spec`."""
    deploy = declaration.deploy or DeploySection()
    job, path = pipeline_spec.compile_spec(pipeline, deploy, target, home, modules, folder)
    spec = unwrapped(job)
    platform = kubernetes_platform(spec, deploy)
    return [spec, *([platform] if platform else [])], path


def kubernetes_platform(spec: dict[str, Any], deploy: DeploySection) -> dict[str, Any]:
    """Returns the second document of a compiled pipeline, of kfp-kubernetes; empty if it is not needed."""
    executors = spec["deploymentSpec"]["executors"]
    containers = sorted(name for name, executor in executors.items() if "container" in executor)
    pods = {name: pod_of(deploy, name.removesuffix(pipeline_spec.EXECUTOR.format("")))[0] for name in containers}
    return {"platforms": {"kubernetes": {"deploymentSpec": {"executors": pods}}}} if any(pods.values()) else {}


def instructions(declaration: Declaration, target: str, file: Path) -> Iterator[str]:
    """Yields the next steps for the user."""
    home = PipelineFolders((declaration.deploy or DeploySection()).pipeline_root or "", declaration.name)
    yield f"submit it by `submit`, or upload it and give each run the pipeline root {home.root}"


def rows(documents: list[dict[str, Any]]) -> Iterator[Row]:
    """Yields the resources of the steps, and of the pods of a training job that one starts."""
    tasks = {task.name: task for task in read_spec(documents[0], None).tasks}
    for row in pipeline_spec.rows(documents[0]):
        yield row
        if job := _job_of(tasks[row.step]):
            yield from (pod._replace(step=f"  {pod.step}") for pod in training_jobs.rows(job))


def _job_of(task: Task) -> list[dict[str, Any]]:
    """Returns the manifests of the training job that a step starts; empty if it starts none."""
    parameters = task.given("parameters")
    if SETTINGS_KEY not in parameters:
        return []
    settings = Settings.of({key: parameters[key]["runtimeValue"]["constant"] for key in (SETTINGS_KEY, OPERATION_KEY)})
    deploy = DeploySection.parse_obj((settings.declaration or {}).get("deploy") or {})
    if not deploy.trainjob.train:
        return []
    return make_manifests("", deploy, TRAINJOB, settings.distribution.resolved(), ())
