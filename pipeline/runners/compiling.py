"""Compiles a declaration for a service: the file that it takes, and the user's modules beside it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Optional

import yaml

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.targets import KUBEFLOW, TFJOB, VERTEX
from tfx_estimator.pipeline.config import Declaration, Loaded
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.runners import entry
from tfx_estimator.pipeline.travelling import user_targets
from tfx_estimator.pipeline.user_source.pack import Packed, pack

# Linux takes 131,071 bytes of one argument, or variable with its name; the rest is for what is known when a step runs.
# Source: MAX_ARG_STRLEN in execve(2).
MOST_BYTES = 120_000
_ALL = "{{$}}"


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
        DeclarationError: The user's code cannot travel; or a step could not be started with what it is told.
    """
    declaration = loaded.declaration
    deploy = declaration.deploy or DeploySection()
    if target == TFJOB:
        from tfx_estimator.pipeline.runners.tfjob import compile_tfjob

        code = [each for step in user_targets(declaration).values() for each in step]
        # They travel in the file.
        made = compile_tfjob(declaration, deploy, pack(code, loaded.search_paths))
        check_starts(made, target)
        return Compiled(_yaml(*made), (), "", "")
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
        check_starts([told], target)
        return _yaml(told), path
    from tfx_estimator.pipeline.runners import pipeline_spec

    job, path = pipeline_spec.compile_spec(pipeline, deploy, target, home, modules, folder)
    if deploy.vertex is not None:
        from tfx_estimator.pipeline.runners import custom_job

        node = pipeline_spec.TRAINER
        custom_job.launch_from(job["pipelineSpec"], node, declaration, modules.get(node))
    check_starts([job["pipelineSpec"]], target)
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


def check_starts(documents: list[dict[str, Any]], target: str) -> None:
    """Checks each container.

    Args:
        documents: What was compiled; of a PipelineJob its PipelineSpec.
        target: One of `targets.ALL_TARGETS`.

    Raises:
        DeclarationError: One of them could not be started.
    """
    if target == TFJOB:
        replicas = documents[-1]["spec"]["tfReplicaSpecs"]
        for kind, each in replicas.items():
            for container in each["template"]["spec"]["containers"]:
                _check_length(f"pod {kind}", _of_pod(container))
    elif target == KUBEFLOW:
        for template in documents[0]["spec"]["templates"]:
            if "container" in template:
                _check_length(f"step {template['name']}", _of_pod(template["container"]))
    else:
        _check_spec(documents[0])


def _check_spec(spec: Mapping[str, Any]) -> None:
    for name, task in spec["root"]["dag"]["tasks"].items():
        label = spec["components"][task["componentRef"]["name"]]["executorLabel"]
        if (container := spec["deploymentSpec"]["executors"][label].get("container")) is None:
            continue  # a resolver's
        given = task.get("inputs", {}).get("parameters", {})
        told = {key: each["runtimeValue"]["constant"] for key, each in given.items() if "runtimeValue" in each}
        # A service puts the whole input of the step in this one's place.
        whole = json.dumps(told, ensure_ascii=False)
        _check_length(f"step {name}", [word.replace(_ALL, whole) for word in _of_pod(container)])


def _of_pod(container: Mapping[str, Any]) -> Iterator[str]:
    yield from (*container.get("command", ()), *container.get("args", ()))
    for each in container.get("env", ()):
        yield f"{each['name']}={each.get('value', '')}"


def _check_length(what: str, words: Iterable[str]) -> None:
    longest = max(len(word.encode()) for word in words)
    if longest > MOST_BYTES:
        raise DeclarationError(
            f"the {what} could not be started: one of its arguments has {longest:,} bytes, and Linux takes no more "
            "than 131,071",
            expected=f"at most {MOST_BYTES:,} bytes of each, which leaves room for what is known when it runs",
            todo="shorten what is long: the names of the data's classes, which the step is told all of, or "
            "trainer.params; or take --target tfjob, whose pods read them from files",
        )
