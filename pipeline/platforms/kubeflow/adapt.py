"""Makes what TFX compiles what Kubeflow Pipelines 2 executes, whoever wrote the pipeline and its components.

TFX compiles for Vertex AI. What the other service does with that: backend/src/v2 of https://github.com/kubeflow/pipelines.
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

# What is started in place of TFX's entry; named by text, because it is imported in the container only.
ENTRY = "tfx_estimator.pipeline.platforms.kubeflow.step"
_TFX_ENTRY = "tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor"
_TFX_DRIVER = "tfx.orchestration.kubeflow.v2.file_based_example_gen.driver"
_INPUTS = "--json_serialized_inputs_spec_args"
# Finds the latest blessed model, where a resolver would; what it puts out.
_FINDER = "tfx_estimator.components.baseline_finder.executor.Executor"
_STRING = {"artifactType": {"instanceSchema": "title: tfx.String\ntype: object\n"}}
# Of schema 2.0 and 2.1.
_KINDS = {"INT": "NUMBER_INTEGER", "DOUBLE": "NUMBER_DOUBLE", "STRING": "STRING"}


def adapt(told: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Adapts a compiled pipeline.

    Args:
        told: A PipelineJob, or the PipelineSpec alone, as JSON has it.

    Returns:
        The PipelineSpec, which is what Kubeflow Pipelines 2 takes; and what was adapted in it, if anything.

    Raises:
        DeclarationError: It is none, or a step needs the resolver that it has.
    """
    notes = []
    try:
        whole: dict[str, Any] = copy.deepcopy(dict(told))
        if whole.get("pipelineSpec", whole)["schemaVersion"].startswith("2.0"):
            whole = _of_schema_2_1(whole)
            whole.get("pipelineSpec", whole)["schemaVersion"] = "2.1.0"
            notes.append("the schema was 2.0, and is 2.1, the only one that Kubeflow Pipelines 2 takes")
        spec = unwrapped(whole) if "pipelineSpec" in whole else whole
        # Of the pipeline, and of those inside of it.
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
    """Returns the PipelineSpec of a PipelineJob, with what that says of its runs as the default."""
    spec, runtime = dict(job["pipelineSpec"]), job.get("runtimeConfig", {})
    for name, value in runtime.get("parameterValues", {}).items():
        spec["root"]["inputDefinitions"]["parameters"][name]["defaultValue"] = value
    if root := runtime.get("gcsOutputDirectory"):
        spec["defaultPipelineRoot"] = root
    return spec


def tell_home(spec: dict[str, Any], runtime: dict[str, Any], home: str, names: Iterable[str]) -> None:
    """Tells steps where the pipeline's folder is, which whoever submits it may choose."""
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


def _of_schema_2_1(told: Any) -> Any:
    """Returns a part of a specification of schema 2.0 in the words of 2.1: it has types of JSON."""
    if isinstance(told, list):
        return [_of_schema_2_1(each) for each in told]
    if not isinstance(told, dict):
        return told
    if told.keys() == {"type"} and told["type"] in _KINDS:
        return {"parameterType": _KINDS[told["type"]]}
    if "constantValue" in told:
        return {"constant": _value(told["constantValue"])}
    made = {key: _of_schema_2_1(each) for key, each in told.items()}
    if "gcsOutputDirectory" in made and "parameters" in made:
        made["parameterValues"] = {name: _value(each) for name, each in made.pop("parameters").items()}
    return made


def _value(told: Mapping[str, Any]) -> Any:
    """A value that is told with its type; whole numbers are text."""
    ((kind, value),) = told.items()
    return int(value) if kind == "intValue" else value


def _adapt_tasks(tasks: dict[str, Any], spec: dict[str, Any]) -> list[str]:
    """Adapts what a pipeline does; returns what was adapted in it."""
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
                notes.append(_compare(spec, name, key))
                del given["artifacts"][key], taken["artifacts"][key]
        for key, source in given.get("parameters", {}).items():
            if (output := source.get("taskOutputParameter")) and output["producerTask"] not in tasks:
                # TFX has another name for the task than it gives it, and says text of all that it puts out.
                output["producerTask"] = output["producerTask"].removesuffix("_task")
                made = components[output["producerTask"]]["outputDefinitions"]["parameters"]
                taken["parameters"][key]["parameterType"] = made[output["outputParameterKey"]]["parameterType"]
        container = executors.get(labels[name], {}).get("container", {})
        if _TFX_ENTRY in container.get("command", ()):
            started += 1
            if _start(container, taken) and task.pop("cachingOptions", None):
                notes.append(f"{name} is not cached: nobody looks whether the files that it reads have changed")
    return notes + ([f"steps that tfx-estimator's entry starts, in place of TFX's: {started}"] if started else [])


def _start(container: dict[str, Any], taken: Mapping[str, Any]) -> bool:
    """Has a step started by this project's entry; returns whether TFX has a driver for it, which nobody else starts."""
    container["command"] = [ENTRY if word == _TFX_ENTRY else word for word in container["command"]]
    words = container["args"]
    if _INPUTS in words:
        place = words.index(_INPUTS)
        del words[place : place + 2]
    words += [_INPUTS, json.dumps(taken, sort_keys=True)]
    if drives := _TFX_DRIVER in container.pop("lifecycle", {}).get("preCacheCheck", {}).get("command", ()):
        words.append(DRIVER)
    return drives


def _compare(spec: dict[str, Any], name: str, key: str) -> str:
    """Has an Evaluator find what it compares with by a step in place of a resolver; returns what comes of it."""
    if key != "baseline_model":
        raise DeclarationError(
            f"the input {key} of {name} comes from a resolver, and Kubeflow Pipelines 2 has none",
            expected="a resolver for the baseline of an Evaluator only, which does without one",
            todo="import the artifact by an Importer, or have a component of yours find it",
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
    tell_home(spec, {}, spec["defaultPipelineRoot"], (name, finder))
    task["inputs"]["parameters"]["found_baseline"] = {
        "taskOutputParameter": {"producerTask": finder, "outputParameterKey": "found"}
    }
    declared["parameters"]["found_baseline"] = text
    task["dependentTasks"].append(finder)
    started = {"image": container["image"], "command": [*container["command"]]}
    started["args"] = ["--executor_class_path", _FINDER, "--json_serialized_invocation_args", "{{$}}"]
    executors[f"{finder}_executor"] = {"container": started}
    _start(started, spec["components"][finder]["inputDefinitions"])
    return f"{name} compares with the latest model that it has blessed, which {finder} finds"
