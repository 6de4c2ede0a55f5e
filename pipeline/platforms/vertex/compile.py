"""Compiles for Vertex AI Pipelines: a PipelineJob, whose Trainer may create a custom job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfx.orchestration.pipeline import Pipeline

from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.platforms import pipeline_spec
from tfx_estimator.pipeline.platforms.rows import Row
from tfx_estimator.pipeline.platforms.vertex.custom_job import launch_from
from tfx_estimator.pipeline.user_source.pack import Packed


def compile_pipeline(
    pipeline: Pipeline, declaration: Declaration, target: str, home: str, modules: Mapping[str, Packed], folder: str
) -> tuple[list[dict[str, Any]], str]:
    """See `pipeline_spec.compile_spec`."""
    deploy = declaration.deploy or DeploySection()
    job, path = pipeline_spec.compile_spec(pipeline, deploy, target, home, modules, folder)
    if deploy.vertex is not None:
        node = pipeline_spec.TRAINER
        launch_from(job["pipelineSpec"], node, declaration, modules.get(node))
    return [job], path


def instructions(declaration: Declaration, target: str, file: Path) -> Iterator[str]:
    """Yields the next steps for the user."""
    deploy = declaration.deploy or DeploySection()
    account = f", as {deploy.service_account}" if deploy.service_account else ""
    yield f"submit it to project {deploy.project}, region {deploy.region}{account}"
    # Google's client reads neither from the file.
    labels = f", labels={deploy.labels}" if deploy.labels else ""
    submitted = f"service_account={deploy.service_account!r}" if deploy.service_account else ""
    if labels or submitted:
        yield f"with Google's own client: PipelineJob(template_path=…{labels}).submit({submitted})"


def rows(documents: list[dict[str, Any]]) -> Iterator[Row]:
    """Yields the steps' resources."""
    return pipeline_spec.rows(documents[0]["pipelineSpec"])
