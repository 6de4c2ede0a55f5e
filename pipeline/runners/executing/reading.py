"""Reads a PipelineSpec as the service does: by its protocol buffers, whose JSON has every value of its type."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.runners import entry
from tfx_estimator.pipeline.runners.executing import resolving
from tfx_estimator.pipeline.runners.executing.task import Task

EXPECTED = "what `tfx-estimator compile --target vertex`, or kubeflow_v2, wrote"
RECOMPILE = "compile it anew, with schema 2.1, and without conditions, loops or pipelines inside of pipelines"
# They become parts of paths.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}")
_MAX_RETRIES = 100
_EXECUTORS = ("container", "resolver", "importer")
_TYPES: dict[str, type] = {
    "STRING": str,
    "NUMBER_INTEGER": float,
    "NUMBER_DOUBLE": float,
    "BOOLEAN": bool,
    "LIST": list,
    "STRUCT": dict,
}


def wrong(what: str, todo: str = RECOMPILE) -> DeclarationError:
    """Returns the error of a file that is no compiled pipeline, or none for here."""
    return DeclarationError(what, expected=EXPECTED, todo=todo)


def canonical(spec: Any, runtime: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns a PipelineSpec and its runtimeConfig with values of the types that their schema has.

    Args:
        runtime: Likewise; None for none.

    Raises:
        DeclarationError: They do not keep to the schema.
    """
    # Where a file is only read for its tasks, as of `submit`, it was compiled by this process: kfp is loaded already.
    from google.protobuf import json_format
    from kfp.pipeline_spec import pipeline_spec_pb2

    messages = {
        "pipelineSpec": (spec, pipeline_spec_pb2.PipelineSpec()),
        "runtimeConfig": ({} if runtime is None else runtime, pipeline_spec_pb2.PipelineJob.RuntimeConfig()),
    }
    if isinstance(spec, dict):
        # A Struct of a PipelineSpec, whose schema is one of its own.
        deployed = spec.get("deploymentSpec"), pipeline_spec_pb2.PipelineDeploymentConfig()
        messages["deploymentSpec"] = deployed
    read = {}
    for name, (told, message) in messages.items():
        if not isinstance(told, dict):
            raise wrong(f"{name} is no mapping")
        try:
            read[name] = json_format.MessageToDict(json_format.ParseDict(told, message))
        except (json_format.Error, ValueError, TypeError) as error:
            raise wrong(f"{name} does not keep to its schema: {one_line(str(error))}") from error
        if any("\0" in text for text in _texts(read[name])):
            raise wrong(f"{name} has a text with the character NUL, which no command can be given")
    return {**read["pipelineSpec"], "deploymentSpec": read["deploymentSpec"]}, read["runtimeConfig"]


def check_name(name: Any, of: str) -> str:
    """Returns a name that becomes part of a path.

    Raises:
        DeclarationError: It might lead elsewhere.
    """
    if not _NAME.fullmatch(str(name)):
        allowed = "letters, digits, `_`, `-`, `+` and `.`, at most 128"
        raise wrong(f"the name of {of}, {one_line(str(name))!r}, is none: {allowed}")
    return str(name)


def check_parameters(values: Mapping[str, Any], kinds: Mapping[str, str]) -> None:
    """Checks the runtime parameters.

    Args:
        values: By name; None is open.

    Raises:
        DeclarationError: One is not declared, or not of its type.
    """
    for name, value in values.items():
        if name not in kinds:
            raise wrong(f"the runtime parameter {one_line(name)} has a value, and is not declared")
        # Who executes it says what is open.
        empty = _TYPES.get(kinds[name], str)()
        _check_type(empty if value is None else value, kinds[name], f"the runtime parameter {one_line(name)}")


def check_task(task: Task, tasks: Mapping[str, Task], kinds: Mapping[str, str]) -> None:
    """Checks that a task can be executed, as far as that is known before anything is.

    Args:
        kinds: Types of the runtime parameters, by name.

    Raises:
        DeclarationError: It cannot, or not here.
    """
    what = f"the task {task.name}"
    if not 1 <= task.tries <= 1 + _MAX_RETRIES:
        raise wrong(f"{what} has {task.tries - 1} retries, and not 0 to {_MAX_RETRIES}")
    for name in task.upstream:
        if name not in tasks:
            raise wrong(f"{what} waits for {one_line(name)}, which is no task")
    outputs = task.definitions("output", "artifacts")
    for key, defined in outputs.items():
        _check_type_schema(defined.get("artifactType", {}), f"the output {check_name(key, f'an output of {what}')}")
    _check_artifacts(task, tasks, what)
    _check_given(task, kinds, what)
    if [kind for kind in _EXECUTORS if kind in task.executor] != list(task.executor) or len(task.executor) != 1:
        named = ", ".join(task.executor) or "nothing"
        raise wrong(f"{what} has an executor that is not emulated here: {named}", "execute it on the service")
    if task.container is not None:
        _check_container(task.container, what)
    elif "resolver" in task.executor:
        queries = task.executor["resolver"].get("outputArtifactQueries", {})
        if queries.keys() != outputs.keys():
            raise wrong(f"{what} is a resolver with other queries than outputs")
        resolving.check(task)
    else:
        _check_importer(task, what)


def _check_artifacts(task: Task, tasks: Mapping[str, Task], what: str) -> None:
    defined, given = task.definitions("input", "artifacts"), task.given("artifacts")
    if differing := sorted(defined.keys() ^ given.keys()):
        raise wrong(f"{what} and its component differ in the input {one_line(differing[0])}")
    for key, source in given.items():
        made = source.get("taskOutputArtifact")
        if made is None:
            raise wrong(f"{what} takes {one_line(key)} from no task")
        producer, output = made.get("producerTask", ""), made.get("outputArtifactKey", "")
        if output not in tasks[producer].definitions("output", "artifacts"):
            raise wrong(f"{what} takes {one_line(key)} from {one_line(output)!r}, which is no output of {producer}")


def _check_given(task: Task, kinds: Mapping[str, str], what: str) -> None:
    defined, given = task.definitions("input", "parameters"), task.given("parameters")
    optional = {key for key, each in defined.items() if "defaultValue" in each or each.get("isOptional")}
    if differing := sorted((defined.keys() ^ given.keys()) - (optional - given.keys())):
        raise wrong(f"{what} and its component differ in the input {one_line(differing[0])}")
    for key, source in given.items():
        kind, shown = defined[key].get("parameterType", ""), one_line(key)
        if "componentInputParameter" in source:
            wanted = source["componentInputParameter"]
            if wanted not in kinds:
                raise wrong(f"{what} takes {one_line(wanted)}, which is no parameter")
            if kinds[wanted] != kind:
                raise wrong(f"{what} takes {one_line(wanted)} as a {kind}, which is a {kinds[wanted]}")
        elif "constant" in source.get("runtimeValue", {}):
            _check_type(source["runtimeValue"]["constant"], kind, f"the input {shown} of {what}")
        else:
            raise wrong(
                f"{what} takes {shown} from another component, and not a constant or a runtime parameter: that is not "
                "emulated here",
                "execute it on the service",
            )


def _check_type(value: Any, kind: str, what: str) -> None:
    if kind not in _TYPES:
        raise wrong(f"{what} is of no type that is known here: {one_line(str(kind))!r}")
    # JSON of protocol buffers has no whole numbers.
    fits = isinstance(value, _TYPES[kind])
    if not fits or (kind == "NUMBER_INTEGER" and not value.is_integer()):
        raise wrong(f"{what} is a {kind}, and no {one_line(str(value)[:80])!r}")


def _check_type_schema(schema: Mapping[str, Any], what: str) -> None:
    try:
        if resolving.title(schema):
            return
    except (yaml.YAMLError, AttributeError):
        pass
    raise wrong(f"{what} is of an artifact type without a title")


def _check_container(container: Mapping[str, Any], what: str) -> None:
    words = [*container.get("command", ()), *container.get("args", ())]
    if not container.get("command") or not words[0]:
        raise wrong(f"the container of {what} has no command")
    if not container.get("image"):
        raise wrong(f"the container of {what} has no image")
    for each in container.get("env", ()):
        if not each.get("name") or "=" in each["name"]:
            raise wrong(f"the container of {what} has a variable without a name, or with `=` in it")
    if (wheel := entry.wheel_of(container)) is not None:
        check_name(wheel, f"the modules of {what}")


def _check_importer(task: Task, what: str) -> None:
    told = task.executor["importer"]
    place = told.get("artifactUri", {})
    wanted = place.get("runtimeParameter")
    named = task.definitions("input", "parameters").get(wanted, {}).get("parameterType") == "STRING"
    if not named and not isinstance(place.get("constant"), str):
        raise wrong(f"{what} imports from nowhere")
    if len(task.definitions("output", "artifacts")) != 1:
        raise wrong(f"{what} imports one artifact, and has another number of outputs")
    _check_type_schema(told.get("typeSchema", {}), f"what {what} imports")


def _texts(value: Any) -> Iterator[str]:
    """Yields every text in a value, keys as well."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
