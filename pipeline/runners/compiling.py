"""Compiles a declaration for a service: the file that it takes, and the user's modules beside it."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import Any, Optional

import yaml

from tfx_estimator.pipeline.build import create_pipeline
from tfx_estimator.pipeline.config import Loaded
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.runners import entry
from tfx_estimator.pipeline.targets import KUBEFLOW, VERTEX
from tfx_estimator.pipeline.travelling import user_targets
from tfx_estimator.pipeline.user_source.pack import Packed, pack


@dataclass(frozen=True)
class Compiled:
    """A pipeline that was compiled.

    Args:
        text: Of the file for the service: JSON for Vertex AI, else YAML.
        modules: The user's own modules; None if there are none.
        modules_uri: Where the steps look for them; empty if there are none.
    """

    text: str
    modules: Optional[Packed]
    modules_uri: str


def compile_declaration(loaded: Loaded, target: str) -> Compiled:
    """Compiles a declaration.

    Args:
        loaded: Loaded for this target.
        target: One of `targets.TARGETS`.

    Raises:
        DataError: The data set cannot be looked at.
        DeclarationError: The user's code cannot travel.
    """
    declaration = loaded.declaration
    deploy = declaration.deploy or DeploySection()
    sys.path[:0] = [path for path in loaded.search_paths if path not in sys.path]
    modules = pack(user_targets(declaration), loaded.search_paths)
    folders = PipelineFolders(deploy.pipeline_root or "", declaration.name)
    uri = os.path.join(folders.home, "modules", modules.name) if modules else ""
    pipeline = create_pipeline(declaration, folders, loaded.search_paths, loaded.declared, target)
    return Compiled(_compile(pipeline, deploy, target, uri, modules), modules, uri)


def _compile(pipeline: Any, deploy: DeploySection, target: str, uri: str, modules: Optional[Packed]) -> str:
    def wrapped(command: tuple[str, ...]) -> list[str]:
        return entry.command(uri, modules.sha256, command) if modules else list(command)

    if target == KUBEFLOW:
        from tfx_estimator.pipeline.runners import workflow

        return _yaml(workflow.compile_workflow(pipeline, deploy, wrapped(workflow.COMMAND)))
    from tfx_estimator.pipeline.runners import pipeline_spec

    job = pipeline_spec.compile_spec(pipeline, deploy, wrapped(pipeline_spec.COMMAND))
    if target == VERTEX:
        return json.dumps(job, indent=2, sort_keys=True) + "\n"
    spec = {**job["pipelineSpec"], "defaultPipelineRoot": job["runtimeConfig"]["gcsOutputDirectory"]}
    platform = pipeline_spec.kubernetes_platform(job, deploy)
    return _yaml(spec, *([platform] if platform else []))


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
