"""Compiles a declaration for a service: the file that it takes, and the user's modules beside it."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Optional

import yaml

from tfx_estimator.pipeline.base.targets import KUBEFLOW, TFJOB, VERTEX
from tfx_estimator.pipeline.config import Declaration, Loaded
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.runners import entry
from tfx_estimator.pipeline.travelling import user_targets
from tfx_estimator.pipeline.user_source.pack import Packed, pack


@dataclass(frozen=True)
class Compiled:
    """A pipeline that was compiled.

    Args:
        text: Of the file for the service: JSON for Vertex AI, else YAML.
        modules: The user's own modules, as each step wants them.
        modules_uri: The folder where the steps look for them.
        path: Of a file with less in it, which TFX's own command line takes.
    """

    text: str
    modules: tuple[Packed, ...]
    modules_uri: str
    path: str


def compile_declaration(loaded: Loaded, target: str, folder: Optional[str] = None) -> Compiled:
    """Compiles a declaration.

    Args:
        loaded: Loaded for this target.
        target: One of `targets.ALL_TARGETS`.
        folder: For what TFX's runner writes; None takes one that is gone afterwards.

    Raises:
        DataError: The data set cannot be looked at.
        PipelineError: Its bucket is not there.
        DeclarationError: The user's code cannot travel.
    """
    declaration = loaded.declaration
    deploy = declaration.deploy or DeploySection()
    if target == TFJOB:
        from tfx_estimator.pipeline.runners.tfjob import compile_tfjob

        code = [each for step in user_targets(declaration).values() for each in step]
        # They travel in the file.
        return Compiled(_yaml(*compile_tfjob(declaration, deploy, pack(code, loaded.search_paths))), (), "", "")
    from tfx_estimator.pipeline.build import create_pipeline
    from tfx_estimator.pipeline.runners.buckets import check_buckets

    # The bucket of the pipeline root is not checked: only the service has to reach it.
    check_buckets((declaration.data.dataset, declaration.data.data_dir))
    loaded.make_importable()
    targets = user_targets(declaration)
    modules = {step: packed for step, code in targets.items() if (packed := pack(code, loaded.search_paths))}
    folders = PipelineFolders(deploy.pipeline_root or "", declaration.name)
    pipeline = create_pipeline(loaded, folders, target=target)
    with tempfile.TemporaryDirectory(prefix="tfx-estimator-") if folder is None else nullcontext(folder) as place:
        text, path = _compile(pipeline, declaration, target, folders.home, modules, place)
    return Compiled(text, tuple(dict.fromkeys(modules.values())), os.path.join(folders.home, entry.FOLDER), path)


def _compile(
    pipeline: Any, declaration: Declaration, target: str, home: str, modules: dict[str, Packed], folder: str
) -> tuple[str, str]:
    deploy = declaration.deploy or DeploySection()
    if target == KUBEFLOW:
        from tfx_estimator.pipeline.runners import workflow

        told, path = workflow.compile_workflow(pipeline, deploy, modules, folder)
        return _yaml(told), path
    from tfx_estimator.pipeline.runners import pipeline_spec

    job, path = pipeline_spec.compile_spec(pipeline, deploy, target, home, modules, folder)
    if deploy.vertex is not None:
        from tfx_estimator.pipeline.runners import custom_job

        node = pipeline_spec.TRAINER
        custom_job.launch_from(job["pipelineSpec"], node, declaration, modules.get(node))
    if target == VERTEX:
        return json.dumps(job, indent=2, sort_keys=True) + "\n", path
    spec = {**job["pipelineSpec"], "defaultPipelineRoot": job["runtimeConfig"]["gcsOutputDirectory"]}
    platform = pipeline_spec.kubernetes_platform(job, deploy)
    return _yaml(spec, *([platform] if platform else [])), path


def _yaml(*documents: dict[str, Any]) -> str:
    return yaml.dump_all(documents, sort_keys=True, Dumper=_Dumper, width=120)


class _Dumper(yaml.SafeDumper):
    """Repeats what is said twice, in place of `&id001`, which not every reader knows; keeps lines as lines."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Writes what has several lines as such."""
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _Dumper.represent_text)
