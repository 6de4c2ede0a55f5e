"""Reads a compiled pipeline, of Vertex AI or of Kubeflow Pipelines 2."""

from __future__ import annotations

import graphlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Optional

import yaml

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.platforms.registry import KUBEFLOW, VERTEX

_EXECUTORS = ("container", "resolver")
# Fields of tasks that are not emulated.
_OF_TASKS = ("triggerPolicy", "parameterIterator", "artifactIterator")


@dataclass(frozen=True)
class Task:
    """One task of a compiled pipeline.

    Args:
        spec: The PipelineTaskSpec: inputs, retries, caching.
        component: Its interface: the inputs and outputs of each kind.
        executor: Its container or resolver.
        upstream: The tasks that it waits for.
    """

    name: str
    spec: Mapping[str, Any]
    component: Mapping[str, Any]
    executor: Mapping[str, Any]
    upstream: tuple[str, ...]

    @property
    def container(self) -> Optional[Mapping[str, Any]]:
        """Its container; None for a resolver, which the service runs itself."""
        return self.executor.get("container")

    @property
    def tries(self) -> int:
        """Its maximum number of tries."""
        return 1 + int(self.spec.get("retryPolicy", {}).get("maxRetryCount", 0))

    @property
    def is_cached(self) -> bool:
        """True if results of an earlier execution may be reused."""
        return bool(self.spec.get("cachingOptions", {}).get("enableCache"))

    def definitions(self, direction: str, kind: str) -> Mapping[str, Any]:
        """Returns the component's definitions of `input` or `output`, `artifacts` or `parameters`, by key."""
        return self.component.get(f"{direction}Definitions", {}).get(kind, {})

    def given(self, kind: str) -> Mapping[str, Any]:
        """Returns the sources of its input `artifacts` or `parameters`, by key."""
        return self.spec.get("inputs", {}).get(kind, {})


@dataclass(frozen=True)
class Job:
    """A compiled pipeline.

    Args:
        root: The pipeline root, where the service would write artifacts.
        tasks: In topological order.
        parameters: The runtime parameters' defaults; None for one without.
        kinds: Their types, as a PipelineSpec names them.
        target: The service that takes it.
    """

    name: str
    root: str
    tasks: tuple[Task, ...]
    parameters: Mapping[str, Any]
    kinds: Mapping[str, str]
    target: str = VERTEX


def read_documents(path: str) -> list[dict[str, Any]]:
    """Reads the JSON or YAML documents of a compiled pipeline; the pipeline is the first.

    Raises:
        DeclarationError: It cannot be read, or is no compiled pipeline.
    """
    shown = one_line(path)
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            text = file.read()
        try:
            # The YAML parser would read JSON numbers like 1e-07 as text.
            documents = [json.loads(text)]
        except ValueError:
            documents = [*yaml.load_all(text, yaml.CSafeLoader)]
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise _wrong(f"{shown} cannot be read: {one_line(str(error))}", "name the file") from error
    if not documents or not isinstance(documents[0], dict):
        raise _wrong(f"{shown} is no compiled pipeline", "name another file")
    if documents[0].get("kind") == "Workflow":
        raise _wrong(f"{shown} is an Argo Workflow, of Kubeflow Pipelines 1", "compile it again: --target kubeflow")
    return documents


def read_job(path: str) -> Job:
    """Reads a compiled pipeline from its JSON or YAML file.

    Raises:
        DeclarationError: It cannot be read, is no compiled pipeline, or uses what is not emulated here.
    """
    shown, whole = one_line(path), read_documents(path)[0]
    spec, runtime = whole.get("pipelineSpec", whole), whole.get("runtimeConfig")
    try:
        # Vertex AI takes a PipelineJob, Kubeflow Pipelines 2 the PipelineSpec in it.
        return replace(read_spec(spec, runtime), target=VERTEX if "pipelineSpec" in whole else KUBEFLOW)
    except (KeyError, TypeError, AttributeError, graphlib.CycleError) as error:
        raise _wrong(f"{shown} is no compiled pipeline: {type(error).__name__}: {one_line(str(error))}") from error


def read_spec(spec: Mapping[str, Any], runtime: Optional[Mapping[str, Any]]) -> Job:
    """Reads a PipelineSpec from JSON.

    Args:
        runtime: The runtimeConfig, if it is in a PipelineJob.

    Raises:
        DeclarationError: It violates its schema, or uses what is not emulated here.
    """
    version = str(spec["schemaVersion"])
    if not version.startswith("2.1"):
        raise _wrong(f"the schema's version is {one_line(version)}")
    whole, config = canonical(spec, runtime)
    root, executors = whole["root"], whole["deploymentSpec"].get("executors", {})
    tasks = {}
    for node, task in root["dag"]["tasks"].items():
        component = whole["components"][task["componentRef"]["name"]]
        if unknown := [key for key in _OF_TASKS if key in task] or [key for key in ("dag",) if key in component]:
            raise _wrong(f"the task {one_line(node)} has a {unknown[0]}, which is not emulated here")
        artifacts = task.get("inputs", {}).get("artifacts", {}).values()
        producers = {each.get("taskOutputArtifact", {}).get("producerTask", "") for each in artifacts}
        upstream = tuple(sorted({*task.get("dependentTasks", ()), *producers}))
        tasks[node] = Task(node, task, component, executors[component["executorLabel"]], upstream)
        if tasks[node].executor.keys() not in [{each} for each in _EXECUTORS]:
            raise _wrong(
                f"the task {node} has an executor that is not emulated here: {', '.join(tasks[node].executor)}"
            )
    declared = root.get("inputDefinitions", {}).get("parameters", {})
    kinds = {key: str(each.get("parameterType", "")) for key, each in declared.items()}
    values = {**{key: each.get("defaultValue") for key, each in declared.items()}, **config.get("parameterValues", {})}
    order = graphlib.TopologicalSorter({node: tasks[node].upstream for node in sorted(tasks)}).static_order()
    place = str(config.get("gcsOutputDirectory") or whole.get("defaultPipelineRoot") or "")
    return Job(whole["pipelineInfo"]["name"], place, tuple(tasks[node] for node in order), values, kinds)


def canonical(spec: Any, runtime: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns a PipelineSpec and its runtimeConfig with values of their schema's types, as the service parses them."""
    # Imported here; `submit`, which reads a file for its tasks only, has compiled it and so loaded kfp already.
    from google.protobuf import json_format
    from kfp.pipeline_spec import pipeline_spec_pb2

    def parsed(value: Any, message: Any) -> dict[str, Any]:
        try:
            return json_format.MessageToDict(json_format.ParseDict(value, message))
        except (json_format.Error, ValueError) as error:
            raise _wrong(f"{type(message).__name__} violates its schema: {one_line(str(error))}") from error

    whole = parsed(spec, pipeline_spec_pb2.PipelineSpec())
    # A Struct in a PipelineSpec, with its own schema.
    deployed = parsed(spec["deploymentSpec"], pipeline_spec_pb2.PipelineDeploymentConfig())
    config = parsed(runtime or {}, pipeline_spec_pb2.PipelineJob.RuntimeConfig())
    return {**whole, "deploymentSpec": deployed}, config


def _wrong(what: str, todo: str = "") -> DeclarationError:
    """Returns the error of a file that is no compiled pipeline, or cannot be executed here."""
    return DeclarationError(
        what,
        expected="what TFX, or `tfx-estimator compile`, wrote for Vertex AI or Kubeflow Pipelines 2",
        todo=todo or "compile it again, with schema 2.1, and without conditions, loops or nested pipelines",
    )
