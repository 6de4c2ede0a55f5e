"""Makes what TFX compiles what Kubeflow Pipelines 2 executes, whoever wrote the pipeline and its components.

TFX compiles for Vertex AI. What the other service does with that: backend/src/v2 of https://github.com/kubeflow/pipelines.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.platforms.rehearsal.job import canonical, read_documents

# What is started in place of TFX's entry; named by text, because it is imported in the container only.
ENTRY = "tfx_estimator.pipeline.platforms.kubeflow.step"
# Has it find the span and the version of its input first, as TFX's driver does where a service starts that.
DRIVER = "--tfx_estimator_driver"
_TFX_ENTRY = "tfx.orchestration.kubeflow.v2.container.kubeflow_v2_run_executor"
_TFX_DRIVER = "tfx.orchestration.kubeflow.v2.file_based_example_gen.driver"
_INPUTS = "--json_serialized_inputs_spec_args"
# What a step does without: a model is compared with none, and its bound on a change has no effect.
_BASELINE = "baseline_model"
# Of schema 2.0 and 2.1.
_KINDS = {"INT": "NUMBER_INTEGER", "DOUBLE": "NUMBER_DOUBLE", "STRING": "STRING"}


def adapt_file(path: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Reads and adapts a compiled file; see `adapt`.

    Returns:
        Its documents, the first adapted, and what to say of it.

    Raises:
        DeclarationError: It cannot be read, is no compiled pipeline, or needs what there is not.
    """
    whole, *others = read_documents(path)
    try:
        spec, notes = adapt(whole)
    except (KeyError, TypeError, AttributeError) as error:
        raise DeclarationError(
            f"{path} is no compiled pipeline: {type(error).__name__}: {error}",
            expected="a PipelineJob or a PipelineSpec that TFX has compiled",
            todo="name the file that KubeflowV2DagRunner wrote",
        ) from error
    return [spec, *others], notes


def adapt(whole: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Adapts a compiled pipeline.

    Args:
        whole: A PipelineJob, or the PipelineSpec alone, as JSON has it.

    Returns:
        The PipelineSpec, which is what Kubeflow Pipelines 2 takes; and what was adapted in it, if anything.

    Raises:
        DeclarationError: It is no PipelineSpec, or a step cannot do without the resolver that it has.
    """
    whole = copy.deepcopy(dict(whole))
    notes = []
    if str(whole.get("pipelineSpec", whole)["schemaVersion"]).startswith("2.0"):
        whole = _of_schema_2_1(whole)
        whole.get("pipelineSpec", whole)["schemaVersion"] = "2.1.0"
        notes.append("of schema 2.0, and is of 2.1 now, which is the only one that Kubeflow Pipelines 2 takes")
    spec = unwrapped(whole) if "pipelineSpec" in whole else whole
    executors = spec["deploymentSpec"]["executors"]
    components = {each["executorLabel"]: each for each in spec["components"].values() if "executorLabel" in each}
    started, driven = [], set()
    for label, component in components.items():
        container = executors[label].get("container", {})
        if [*container.get("command", ()), ""][-2:-1] != [_TFX_ENTRY]:
            continue
        started.append(label)
        container["command"][-1] = ENTRY
        if _INPUTS not in container["args"]:
            container["args"] += [_INPUTS, json.dumps(component.get("inputDefinitions", {}), sort_keys=True)]
        hook = container.pop("lifecycle", {}).get("preCacheCheck", {})
        if _TFX_DRIVER in hook.get("command", ()):
            container["args"].insert(0, DRIVER)
            driven.add(label)
    if started:
        notes.append(f"{len(started)} of {len(executors)} steps started by TFX's entry, and by tfx-estimator's now")
    for tasks in _dags(spec):
        for name, task in tasks.items():
            label = spec["components"][task["componentRef"]["name"]].get("executorLabel")
            if label in driven and task.pop("cachingOptions", None):
                notes.append(f"{name} is not cached: nobody looks whether the files of its input have changed")
            for given in task.get("inputs", {}).get("parameters", {}).values():
                # TFX has another name for the task than it gives it.
                if (source := given.get("taskOutputParameter", {})).get("producerTask", "").endswith("_task"):
                    source["producerTask"] = source["producerTask"].removesuffix("_task")
    notes += _without_resolvers(spec)
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


def _dags(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the tasks of the pipeline, and of those inside of it."""
    for component in (spec["root"], *spec["components"].values()):
        if "dag" in component:
            yield component["dag"]["tasks"]


def _without_resolvers(spec: dict[str, Any]) -> Iterator[str]:
    """Leaves out resolvers, which are not implemented there; yields what steps have none of for it."""
    executors = spec["deploymentSpec"]["executors"]
    gone = {
        name
        for name, component in spec["components"].items()
        if "resolver" in executors.get(component.get("executorLabel"), {})
    }
    for tasks in _dags(spec):
        resolved = {name for name, task in tasks.items() if task["componentRef"]["name"] in gone}
        for name in resolved:
            del tasks[name]
        for name, task in tasks.items():
            if "dependentTasks" in task:
                task["dependentTasks"] = [each for each in task["dependentTasks"] if each not in resolved]
            given = task.get("inputs", {}).get("artifacts", {})
            for key in [key for key, it in given.items() if it["taskOutputArtifact"]["producerTask"] in resolved]:
                if key != _BASELINE:
                    raise DeclarationError(
                        f"the input {key} of {name} comes from a resolver",
                        expected="resolvers for the baseline of an Evaluator only: Kubeflow Pipelines 2 has none",
                        todo="import the artifact with an Importer, or have a component of yours find it",
                    )
                del given[key]
                del spec["components"][task["componentRef"]["name"]]["inputDefinitions"]["artifacts"][key]
                yield f"{name} has no {key}, and compares with none: Kubeflow Pipelines 2 has no resolvers"
    for name in gone:
        del executors[spec["components"].pop(name)["executorLabel"]]
