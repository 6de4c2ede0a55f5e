"""Adapts a PipelineSpec that TFX compiled, for Vertex AI, to Kubeflow Pipelines 2; works for any TFX pipeline.

How Kubeflow Pipelines executes one: backend/src/v2 of https://github.com/kubeflow/pipelines.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from typing import Any

from tfx_estimator.components.trainer.settings import HOME_KEY
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.platforms.rehearsal.job import canonical
from tfx_estimator.pipeline.runners.entry import DRIVER

# The module that replaces TFX's entry point; a string, because it is imported in the container only.
ENTRY = "tfx_estimator.pipeline.platforms.kubeflow.step"
_TFX_ENTRY = "tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor"
_TFX_DRIVER = "tfx.orchestration.kubeflow.v2.file_based_example_gen.driver"
_INPUTS = "--json_serialized_inputs_spec_args"
# Executor that replaces the resolver of the latest blessed model, and the type of its output.
_FINDER = "tfx_estimator.components.baseline_finder.executor.Executor"
_STRING = {"artifactType": {"instanceSchema": "title: tfx.String\ntype: object\n"}}
# Parameter types of schema 2.0, and their names in 2.1.
_KINDS = {"INT": "NUMBER_INTEGER", "DOUBLE": "NUMBER_DOUBLE", "STRING": "STRING"}


def adapt(job: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Adapts a compiled pipeline.

    Args:
        job: A PipelineJob or a PipelineSpec, as JSON.

    Returns:
        The PipelineSpec for Kubeflow Pipelines 2, and a note for each adaptation.

    Raises:
        DeclarationError: It is neither, or a step needs a resolver that cannot be replaced.
    """
    notes = []
    try:
        whole: dict[str, Any] = copy.deepcopy(dict(job))
        if whole.get("pipelineSpec", whole)["schemaVersion"].startswith("2.0"):
            whole = _of_schema_2_1(whole)
            whole.get("pipelineSpec", whole)["schemaVersion"] = "2.1.0"
            notes.append("schema 2.0 was converted to 2.1, the only one that Kubeflow Pipelines 2 takes")
        spec = unwrapped(whole) if "pipelineSpec" in whole else whole
        # The pipeline's own tasks, and those of its sub-pipelines.
        for each in (spec["root"], *spec["components"].values()):
            notes += _adapt_tasks(each.get("dag", {}).get("tasks", {}), spec)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DeclarationError(
            f"this is no compiled pipeline: {type(error).__name__}: {error}",
            expected="a PipelineJob or a PipelineSpec, as TFX's KubeflowV2DagRunner writes it",
            todo="name another file",
        ) from error
    canonical(spec, {})
    return spec, notes


def unwrapped(job: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a PipelineJob's PipelineSpec, with the job's runtime config as defaults."""
    spec, runtime = dict(job["pipelineSpec"]), job.get("runtimeConfig", {})
    for name, value in runtime.get("parameterValues", {}).items():
        spec["root"]["inputDefinitions"]["parameters"][name]["defaultValue"] = value
    if root := runtime.get("gcsOutputDirectory"):
        spec["defaultPipelineRoot"] = root
    return spec


def add_home_parameter(spec: dict[str, Any], runtime: dict[str, Any], home: str, names: Iterable[str]) -> None:
    """Adds the runtime parameter with the pipeline's folder, and passes it to the named steps."""
    typed = {"parameterType": "STRING"}
    spec["root"].setdefault("inputDefinitions", {}).setdefault("parameters", {})[HOME_KEY] = {
        **typed,
        "defaultValue": home,
    }
    runtime.setdefault("parameterValues", {})[HOME_KEY] = home
    for name in names:
        task = spec["root"]["dag"]["tasks"][name]
        component = spec["components"][task["componentRef"]["name"]]
        component.setdefault("inputDefinitions", {}).setdefault("parameters", {})[HOME_KEY] = typed
        given = task.setdefault("inputs", {}).setdefault("parameters", {})
        given[HOME_KEY] = {"componentInputParameter": HOME_KEY}


def _of_schema_2_1(part: Any) -> Any:
    """Converts a part of a schema 2.0 specification to 2.1, which uses JSON types."""
    if isinstance(part, list):
        return [_of_schema_2_1(each) for each in part]
    if not isinstance(part, dict):
        return part
    if part.keys() == {"type"} and part["type"] in _KINDS:
        return {"parameterType": _KINDS[part["type"]]}
    if "constantValue" in part:
        return {"constant": _value(part["constantValue"])}
    converted = {key: _of_schema_2_1(each) for key, each in part.items()}
    if "gcsOutputDirectory" in converted and "parameters" in converted:
        converted["parameterValues"] = {name: _value(each) for name, each in converted.pop("parameters").items()}
    return converted


def _value(typed: Mapping[str, Any]) -> Any:
    """Returns the value of a {type: value} mapping, which has integers as text."""
    ((kind, value),) = typed.items()
    return int(value) if kind == "intValue" else value


def _adapt_tasks(tasks: dict[str, Any], spec: dict[str, Any]) -> list[str]:
    """Adapts a pipeline's tasks; returns notes."""
    executors, notes, started = spec["deploymentSpec"]["executors"], [], 0
    components = {name: spec["components"][task["componentRef"]["name"]] for name, task in tasks.items()}
    labels = {name: component.get("executorLabel") for name, component in components.items()}
    resolved = [name for name, label in labels.items() if "resolver" in executors.get(label, {})]
    for name in resolved:
        del spec["components"][tasks.pop(name)["componentRef"]["name"]], executors[labels[name]]
    for name, task in [*tasks.items()]:
        given, taken = task.get("inputs", {}), components[name].get("inputDefinitions", {})
        if waits := task.get("dependentTasks"):
            task["dependentTasks"] = [each for each in waits if each not in resolved]
        for key, source in [*given.get("artifacts", {}).items()]:
            if source.get("taskOutputArtifact", {}).get("producerTask") in resolved:
                notes.append(_replace_resolver(spec, name, key))
                del given["artifacts"][key], taken["artifacts"][key]
        for key, source in given.get("parameters", {}).items():
            if (output := source.get("taskOutputParameter")) and output["producerTask"] not in tasks:
                # TFX adds `_task` to the producer's name, and declares each of its outputs as STRING.
                output["producerTask"] = output["producerTask"].removesuffix("_task")
                outputs = components[output["producerTask"]]["outputDefinitions"]["parameters"]
                taken["parameters"][key]["parameterType"] = outputs[output["outputParameterKey"]]["parameterType"]
        container = executors.get(labels[name], {}).get("container", {})
        if _TFX_ENTRY in container.get("command", ()):
            started += 1
            if _replace_entry(container, taken) and task.pop("cachingOptions", None):
                notes.append(f"{name} is not cached: nothing checks whether its input files have changed")
    return notes + ([f"steps started by tfx-estimator's entry point in place of TFX's: {started}"] if started else [])


def _replace_entry(container: dict[str, Any], taken: Mapping[str, Any]) -> bool:
    """Starts a step by this project's entry point; returns True if that also has to run TFX's driver of the step."""
    container["command"] = [ENTRY if word == _TFX_ENTRY else word for word in container["command"]]
    words = container["args"]
    if _INPUTS in words:
        place = words.index(_INPUTS)
        del words[place : place + 2]
    words += [_INPUTS, json.dumps(taken, sort_keys=True)]
    if has_driver := _TFX_DRIVER in container.pop("lifecycle", {}).get("preCacheCheck", {}).get("command", ()):
        words.append(DRIVER)
    return has_driver


def _replace_resolver(spec: dict[str, Any], name: str, key: str) -> str:
    """Adds a step that finds an Evaluator's baseline, in place of its resolver; returns a note."""
    if key != "baseline_model":
        raise DeclarationError(
            f"the input {key} of {name} comes from a resolver, and Kubeflow Pipelines 2 has none",
            expected="no resolver, except for an Evaluator's baseline",
            todo="import the artifact with an Importer, or find it in a component of your own",
        )
    tasks, executors = spec["root"]["dag"]["tasks"], spec["deploymentSpec"]["executors"]
    component = spec["components"].get(name, {})
    container = executors.get(component.get("executorLabel"), {}).get("container", {})
    blesses = "blessing" in component.get("outputDefinitions", {}).get("artifacts", {})
    if not (blesses and name in tasks and _TFX_ENTRY in container.get("command", ()) and "defaultPipelineRoot" in spec):
        return f"{name} compares with no earlier model: Kubeflow Pipelines 2 has no resolvers"
    task, finder, text = tasks[name], f"{name}-baseline", {"parameterType": "STRING"}
    model, declared = task["inputs"]["artifacts"]["model"], component["inputDefinitions"]
    tasks[finder] = {
        "taskInfo": {"name": finder},
        "componentRef": {"name": finder},
        "dependentTasks": [model["taskOutputArtifact"]["producerTask"]],
        "inputs": {"artifacts": {"model": model}},
    }
    spec["components"][finder] = {
        "executorLabel": f"{finder}_executor",
        "inputDefinitions": {"artifacts": {"model": declared["artifacts"]["model"]}},
        "outputDefinitions": {"artifacts": {"found": _STRING}, "parameters": {"found": text}},
    }
    add_home_parameter(spec, {}, spec["defaultPipelineRoot"], (name, finder))
    task["inputs"]["parameters"]["found_baseline"] = {
        "taskOutputParameter": {"producerTask": finder, "outputParameterKey": "found"}
    }
    declared["parameters"]["found_baseline"] = text
    task["dependentTasks"].append(finder)
    container = {"image": container["image"], "command": [*container["command"]]}
    container["args"] = ["--executor_class_path", _FINDER, "--json_serialized_invocation_args", "{{$}}"]
    executors[f"{finder}_executor"] = {"container": container}
    _replace_entry(container, spec["components"][finder]["inputDefinitions"])
    return f"{name} compares with the latest model that it has blessed, found by {finder}"
