"""Reads a compiled pipeline, of Vertex AI or of Kubeflow Pipelines 2."""

from __future__ import annotations

import graphlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Optional

import yaml

from tfx_estimator.pipeline.base.targets import KUBEFLOW_V2, VERTEX
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.runners.executing.reading import (
    canonical,
    check_name,
    check_parameters,
    check_task,
    wrong,
)
from tfx_estimator.pipeline.runners.executing.task import Task

# What no emulation of ours knows, by where it stands.
_OF_TASKS = ("triggerPolicy", "parameterIterator", "artifactIterator")


@dataclass(frozen=True)
class Job:
    """A compiled pipeline.

    Args:
        root: Where the artifacts would go.
        tasks: Each after those that it waits for.
        parameters: The runtime parameters, with what they are unless somebody says otherwise.
        kinds: Their types, as a PipelineSpec calls them.
        target: The service that takes it.
    """

    name: str
    root: str
    tasks: tuple[Task, ...]
    parameters: Mapping[str, Any]
    kinds: Mapping[str, str]
    target: str = VERTEX


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
    except RecursionError as error:
        raise wrong(f"{shown} is nested too deeply", "name another file") from error
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise wrong(f"{shown} cannot be read: {error}", "name the file") from error
    except yaml.YAMLError as error:
        raise wrong(f"{shown} is neither JSON nor YAML: {one_line(str(error))}", "name another file") from error
    whole = documents[0] if documents else None
    if not isinstance(whole, dict):
        raise wrong(f"{shown} is no compiled pipeline", "name another file")
    if whole.get("kind") == "Workflow":
        todo = "compile with --target kubeflow_v2: its steps are the same, but for the resolver"
        raise wrong(f"{shown} is an Argo Workflow, of Kubeflow Pipelines 1, which is not executed here", todo)
    spec, runtime = whole.get("pipelineSpec", whole), whole.get("runtimeConfig")
    try:
        # Vertex AI takes a PipelineJob, Kubeflow Pipelines 2 what that holds.
        return replace(read_spec(spec, runtime), target=VERTEX if "pipelineSpec" in whole else KUBEFLOW_V2)
    except RecursionError as error:
        raise wrong(f"{shown} is nested too deeply") from error
    except (KeyError, TypeError, AttributeError, graphlib.CycleError) as error:
        raise wrong(f"{shown} is no compiled pipeline: {type(error).__name__}: {one_line(str(error))}") from error


def read_spec(spec: Mapping[str, Any], runtime: Optional[Mapping[str, Any]]) -> Job:
    """Reads a PipelineSpec, as JSON has it.

    Args:
        runtime: Its runtimeConfig, where it is in a PipelineJob.

    Raises:
        DeclarationError: It does not keep to its schema, or needs what is not emulated here.
    """
    version = str(spec["schemaVersion"])
    if not version.startswith("2.1"):
        raise wrong(f"the schema's version is {one_line(version)}")
    whole, config = canonical(spec, runtime)
    root, executors = whole["root"], whole["deploymentSpec"].get("executors", {})
    name = check_name(whole["pipelineInfo"]["name"], "the pipeline")
    tasks = {}
    for node, told in root["dag"].get("tasks", {}).items():
        component = whole["components"][told["componentRef"]["name"]]
        if unknown := [key for key in _OF_TASKS if key in told] or [key for key in ("dag",) if key in component]:
            raise wrong(f"the task {one_line(node)} has a {unknown[0]}, which is not emulated here")
        artifacts = told.get("inputs", {}).get("artifacts", {}).values()
        producers = {each.get("taskOutputArtifact", {}).get("producerTask", "") for each in artifacts}
        upstream = tuple(sorted({*told.get("dependentTasks", ()), *producers}))
        executor = executors[component["executorLabel"]]
        tasks[node] = Task(check_name(node, "a task"), told, component, executor, upstream)
    if not tasks:
        raise wrong("the pipeline has no task")
    declared = root.get("inputDefinitions", {}).get("parameters", {})
    kinds = {key: str(each.get("parameterType", "")) for key, each in declared.items()}
    values = {**{key: each.get("defaultValue") for key, each in declared.items()}, **config.get("parameterValues", {})}
    check_parameters(values, kinds)
    for task in tasks.values():
        check_task(task, tasks, kinds)
    order = graphlib.TopologicalSorter({node: tasks[node].upstream for node in sorted(tasks)}).static_order()
    place = str(config.get("gcsOutputDirectory") or whole.get("defaultPipelineRoot") or "")
    return Job(name, place, tuple(tasks[node] for node in order), values, kinds)


def _parse(text: str) -> list[Any]:
    try:
        # As YAML, its numbers like 1e-07 would be text.
        return [json.loads(text)]
    except ValueError:
        return list(yaml.safe_load_all(text))
