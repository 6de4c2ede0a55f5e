"""Compiles for Kubeflow Pipelines: an Argo Workflow for 1, a PipelineSpec for 2."""

from __future__ import annotations

import graphlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from tfx.orchestration.pipeline import Pipeline

from tfx_estimator.components.trainer.settings import OPERATION_KEY, SETTINGS_KEY, Settings
from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.platforms import pipeline_spec
from tfx_estimator.pipeline.platforms.kubeflow.adapt import unwrapped
from tfx_estimator.pipeline.platforms.plan import Row, row_of
from tfx_estimator.pipeline.platforms.registry import KUBEFLOW
from tfx_estimator.pipeline.platforms.tfjob.compile import make_manifest, rows_of_pods
from tfx_estimator.pipeline.user_source.pack import Packed


def compile_pipeline(
    pipeline: Pipeline, declaration: Declaration, target: str, home: str, modules: Mapping[str, Packed], folder: str
) -> tuple[list[dict[str, Any]], str]:
    """Compiles; see `workflow.compile_workflow`, and `pipeline_spec.compile_spec`."""
    deploy = declaration.deploy or DeploySection()
    if target == KUBEFLOW:
        # Not every stack has it.
        from tfx_estimator.pipeline.platforms.kubeflow.workflow import compile_workflow

        workflow, path = compile_workflow(pipeline, deploy, modules, folder)
        return [workflow], path
    job, path = pipeline_spec.compile_spec(pipeline, deploy, target, home, modules, folder)
    spec = unwrapped(job)
    platform = pipeline_spec.kubernetes_platform(job, deploy)
    return [spec, *([platform] if platform else [])], path


def instructions(declaration: Declaration, target: str, file: Path) -> Iterator[str]:
    """Yields what the user does with the compiled file."""
    if target == KUBEFLOW:
        yield "submit it by `submit`, or upload it to Kubeflow Pipelines and start a run of it there"
        return
    home = PipelineFolders((declaration.deploy or DeploySection()).pipeline_root or "", declaration.name)
    yield f"submit it by `submit`, or upload it, and give each run the pipeline root {home.root}"


def rows(documents: list[dict[str, Any]]) -> Iterator[Row]:
    """Yields what the steps will run on, and the pods of the TFJob that one will start."""
    workflow = documents[0]
    if "spec" not in workflow:
        yield from pipeline_spec.rows(workflow)
        return
    templates = {template["name"]: template for template in workflow["spec"]["templates"]}
    tasks = {task["name"]: task for task in templates[workflow["spec"]["entrypoint"]]["dag"]["tasks"]}
    upstream = {name: sorted(tasks[name].get("dependencies", ())) for name in sorted(tasks)}
    for name in graphlib.TopologicalSorter(upstream).static_order():
        container = templates[tasks[name]["template"]]["container"]
        # Shows the name that the declaration uses in deploy.nodes; Argo's own is in lower case.
        yield row_of(container["args"][container["args"].index("--node_id") + 1], container)
        if (job := _tfjob_of(container["args"])) is not None:
            yield from (row._replace(step=f"  {row.step}") for row in rows_of_pods(job))


def _tfjob_of(arguments: Sequence[str]) -> Optional[dict[str, Any]]:
    """Makes the TFJob that a step will start; None of one that starts none."""
    (node,) = json.loads(arguments[arguments.index("--tfx_ir") + 1])["nodes"]
    told = node["pipelineNode"].get("parameters", {}).get("parameters", {})
    if SETTINGS_KEY not in told:
        return None
    settings = Settings.of({key: told[key]["fieldValue"]["stringValue"] for key in (SETTINGS_KEY, OPERATION_KEY)})
    if not settings.deploy.trains_elsewhere:
        return None
    return make_manifest("", settings.deploy, settings.distribution.resolved(), ())
