"""Reads a compiled pipeline, of Vertex AI or of Kubeflow Pipelines 2."""

from __future__ import annotations

import graphlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

import yaml

from tfx_estimator.pipeline.errors import DeclarationError
from tfx_estimator.pipeline.text import one_line

_EXPECTED = "what `tfx-estimator compile --target vertex`, or kubeflow_v2, wrote"
_RECOMPILE = "compile it anew, with schema 2.1, and without conditions, loops or pipelines inside of pipelines"
# What no emulation of ours knows, by where it stands.
_OF_TASKS = ("triggerPolicy", "parameterIterator", "artifactIterator")


@dataclass(frozen=True)
class Task:
    """One task of a compiled pipeline.

    Args:
        name: Its name.
        told: As the pipeline has it: inputs, retries, caching.
        component: Its interface: the inputs and outputs of each kind.
        executor: Its container, resolver or importer.
        upstream: The tasks that it waits for.
    """

    name: str
    told: Mapping[str, Any]
    component: Mapping[str, Any]
    executor: Mapping[str, Any]
    upstream: tuple[str, ...]

    @property
    def container(self) -> Optional[Mapping[str, Any]]:
        """What starts it; None for a resolver or an importer, which a service does by itself."""
        return self.executor.get("container")

    @property
    def tries(self) -> int:
        """How often a service starts it at most."""
        return 1 + int(self.told.get("retryPolicy", {}).get("maxRetryCount", 0))

    @property
    def is_cached(self) -> bool:
        """May what it made before take the place of its execution."""
        return bool(self.told.get("cachingOptions", {}).get("enableCache"))

    def definitions(self, direction: str, kind: str) -> Mapping[str, Any]:
        """Returns what the component says of its `input` or `output`, `artifacts` or `parameters`, by key."""
        return self.component.get(f"{direction}Definitions", {}).get(kind, {})

    def given(self, kind: str) -> Mapping[str, Any]:
        """Returns where its input `artifacts` or `parameters` come from, by key."""
        return self.told.get("inputs", {}).get(kind, {})


@dataclass(frozen=True)
class Job:
    """A compiled pipeline.

    Args:
        name: Of the pipeline.
        root: Where the artifacts would go.
        tasks: Each after those that it waits for.
        parameters: The runtime parameters, with what they are unless somebody says otherwise.
        kinds: Their types, as a PipelineSpec calls them.
    """

    name: str
    root: str
    tasks: tuple[Task, ...]
    parameters: Mapping[str, Any]
    kinds: Mapping[str, str]


def read_job(path: str) -> Job:
    """Reads a compiled pipeline.

    Args:
        path: Of the JSON, or YAML, file.

    Raises:
        DeclarationError: It cannot be read, is none, or needs what is not emulated here.
    """
    shown = one_line(path)
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            documents = _parse(file.read())
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise _wrong(f"{shown} cannot be read: {error}", "name the file") from error
    except yaml.YAMLError as error:
        raise _wrong(f"{shown} is neither JSON nor YAML: {one_line(str(error))}", "name another file") from error
    whole = documents[0] if documents else None
    if not isinstance(whole, dict):
        raise _wrong(f"{shown} is no compiled pipeline", "name another file")
    if whole.get("kind") == "Workflow":
        todo = "compile with --target kubeflow_v2: its steps are the same, but for the resolver"
        raise _wrong(f"{shown} is an Argo Workflow, of Kubeflow Pipelines 1, which is not executed here", todo)
    spec, runtime = whole.get("pipelineSpec", whole), whole.get("runtimeConfig", {})
    try:
        return read_spec(spec, runtime)
    except (KeyError, TypeError, AttributeError, graphlib.CycleError) as error:
        raise _wrong(f"{shown} is no compiled pipeline: {type(error).__name__}: {error}", _RECOMPILE) from error


def read_spec(spec: Mapping[str, Any], runtime: Mapping[str, Any]) -> Job:
    """Reads a PipelineSpec, as JSON has it.

    Args:
        spec: The specification.
        runtime: Its runtimeConfig, where it is in a PipelineJob.

    Raises:
        DeclarationError: It needs what is not emulated here.
    """
    version = str(spec["schemaVersion"])
    if not version.startswith("2.1"):
        raise _wrong(f"the schema's version is {one_line(version)}", _RECOMPILE)
    root, executors = spec["root"], spec["deploymentSpec"]["executors"]
    tasks = {}
    for name, told in root["dag"]["tasks"].items():
        component = spec["components"][told["componentRef"]["name"]]
        if unknown := [key for key in _OF_TASKS if key in told] or [key for key in ("dag",) if key in component]:
            raise _wrong(f"the task {one_line(name)} has a {unknown[0]}, which is not emulated here", _RECOMPILE)
        artifacts = told.get("inputs", {}).get("artifacts", {}).values()
        producers = {each["taskOutputArtifact"]["producerTask"] for each in artifacts}
        upstream = tuple(sorted({*told.get("dependentTasks", ()), *producers}))
        tasks[name] = Task(name, told, component, executors[component["executorLabel"]], upstream)
    order = graphlib.TopologicalSorter({name: tasks[name].upstream for name in sorted(tasks)}).static_order()
    declared = root.get("inputDefinitions", {}).get("parameters", {})
    parameters = {name: each.get("defaultValue") for name, each in declared.items()}
    values = {**parameters, **runtime.get("parameterValues", {})}
    for name, task in tasks.items():
        for source in task.given("parameters").values():
            if (wanted := source.get("componentInputParameter", "")) and wanted not in values:
                raise _wrong(f"the task {one_line(name)} takes {one_line(wanted)}, which is no parameter", _RECOMPILE)
    return Job(
        str(spec["pipelineInfo"]["name"]),
        str(runtime.get("gcsOutputDirectory") or spec.get("defaultPipelineRoot") or ""),
        tuple(tasks[name] for name in order),
        values,
        {name: str(each.get("parameterType", "")) for name, each in declared.items()},
    )


def _parse(text: str) -> list[Any]:
    try:
        # As YAML, its numbers like 1e-07 would be text.
        return [json.loads(text)]
    except ValueError:
        return list(yaml.safe_load_all(text))


def _wrong(what: str, todo: str) -> DeclarationError:
    return DeclarationError(what, expected=_EXPECTED, todo=todo)
