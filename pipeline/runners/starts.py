"""Checks whether a machine can start the containers of a compiled pipeline with what they are told."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tfx_estimator.pipeline.errors import DeclarationError
from tfx_estimator.pipeline.targets import KUBEFLOW, TFJOB

# Linux takes 131,071 bytes of one argument, or variable with its name; the rest is for what is known when a step runs.
# Source: MAX_ARG_STRLEN in execve(2).
MOST = 120_000
_ALL = "{{$}}"


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
    if longest > MOST:
        raise DeclarationError(
            f"the {what} could not be started: one of its arguments has {longest:,} bytes, and Linux takes no more "
            "than 131,071",
            expected=f"at most {MOST:,} bytes of each, which leaves room for what is known when it runs",
            todo="shorten what is long: the names of the data's classes, which the step is told all of, or "
            "trainer.params; or take --target tfjob, whose pods read them from files",
        )
