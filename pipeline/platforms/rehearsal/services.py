"""Emulates a service's own part: resolvers, which find earlier artifacts, and passing artifacts between steps.

The queries are those that TFX 1.15 compiles LatestArtifactStrategy and LatestBlessedModelStrategy to. None of them has
`in_context`, and so each is "scoped to the current pipeline context": ResolverSpec.ArtifactQuerySpec in
https://github.com/kubeflow/pipelines/blob/master/api/v2alpha1/pipeline_spec.proto.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Optional

import yaml

from tfx_estimator.pipeline.base.errors import PipelineError

if TYPE_CHECKING:
    from tfx_estimator.pipeline.platforms.rehearsal.job import Task

_TERM = re.compile(r'([a-z_.]+)="?([^"]*)"?')
_METADATA = re.compile(r"metadata\.(\w+)\.(number|string|bool)_value")
_PLACEHOLDER = re.compile(r"\{\{\$\.inputs\.artifacts\['(\w+)'\]\.metadata\['(\w+)'\]\}\}")


def resolve(
    task: Task, inputs: Mapping[str, Mapping[str, Any]], earlier: Iterable[Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Runs a resolver.

    Args:
        earlier: All artifacts of this pipeline, the newest first.

    Returns:
        The newest artifact that matches each query; outputs without one are omitted.

    Raises:
        PipelineError: A query is of a kind that is not emulated.
    """
    earlier, found = list(earlier), {}
    for key, query in task.executor["resolver"].get("outputArtifactQueries", {}).items():
        text = str(query.get("filter", ""))
        filled = _fill(text, inputs)
        terms = [] if filled is None else filled.split(" AND ")
        fitting = (artifact for artifact in earlier if all(_fits(term, artifact) for term in terms))
        if filled is not None and (artifact := next(fitting, None)):
            found[key] = dict(artifact)
    return found


def title(artifact_type: Mapping[str, Any]) -> str:
    """Returns the name of an artifact's type: `tfx.Model`."""
    if "schemaTitle" in artifact_type:
        return str(artifact_type["schemaTitle"])
    return str(yaml.load(artifact_type.get("instanceSchema", ""), yaml.CSafeLoader).get("title", ""))


def _fill(text: str, inputs: Mapping[str, Mapping[str, Any]]) -> Optional[str]:
    """Fills in a query's placeholders for metadata of inputs; None if an input was not resolved."""
    for key, name in _PLACEHOLDER.findall(text):
        if key not in inputs or name not in inputs[key].get("metadata", {}):
            return None
    return _PLACEHOLDER.sub(lambda found: str(inputs[found[1]]["metadata"][found[2]]), text)


def _fits(term: str, artifact: Mapping[str, Any]) -> bool:
    match = _TERM.fullmatch(term.strip())
    name, wanted = match.groups() if match else ("", "")
    if name == "schema_title":
        return title(artifact["type"]) == wanted
    if name == "state":
        return wanted == "LIVE"
    if name == "name":
        return artifact["name"] == wanted
    if described := _METADATA.fullmatch(name):
        value = artifact.get("metadata", {}).get(described[1])
        if described[2] != "number":
            return value == wanted
        try:
            return value == float(wanted)
        except ValueError as error:
            raise _not_emulated(term) from error
    raise _not_emulated(term)


def _not_emulated(term: str) -> PipelineError:
    return PipelineError(
        f"the resolver's query has a term that is not emulated here: {term}",
        expected="the queries of LatestArtifactStrategy and LatestBlessedModelStrategy",
        todo="execute this pipeline on the service",
    )


# In the pod, and deleted with it.
OUTPUT_FILE = os.path.join("kfp_outputs", "output_metadata.json")
# The output to which the service publishes the container's log by default.
_LOGS = "executor-logs"

Artifact = Mapping[str, Any]


def as_inputs(artifacts: Mapping[str, Artifact]) -> dict[str, dict[str, Any]]:
    """Returns a step's inputs: the service does not look up their types in ML Metadata."""
    return {key: {**artifact, "type": {"instanceSchema": ""}} for key, artifact in artifacts.items()}


def as_outputs(artifacts: Mapping[str, Artifact], folder: str) -> dict[str, dict[str, Any]]:
    """Returns a step's outputs, which ML Metadata has not named yet."""
    outputs = {key: {"uri": artifact["uri"], "type": artifact["type"]} for key, artifact in artifacts.items()}
    return {**outputs, _LOGS: {"uri": os.path.join(folder, _LOGS), "type": {"schemaTitle": "system.Artifact"}}}


def as_kept(artifact: Artifact, task: str, key: str) -> dict[str, Any]:
    """Returns an artifact as ML Metadata stores it.

    Raises:
        PipelineError: A property is null.
    """
    about = {"display_name": key, "store_session_info": "null"}
    metadata = {
        name: _kept(value, f"{name} of the output {key} of {task}") for name, value in artifact["metadata"].items()
    }
    return {**artifact, "metadata": {**about, **metadata}}


def name_after(names: list[str]) -> int:
    """Returns the ID of the next artifact, which is its name."""
    return 1 + max((int(name) for name in names if name.isdecimal()), default=0)


def _kept(value: Any, what: str) -> Any:
    if value is None:
        raise PipelineError(
            f"the property {what} is null, which Kubeflow Pipelines 2 cannot store",
            expected="a number, a text, a list or a mapping",
            todo="omit it",
        )
    if isinstance(value, (bool, int, float)):
        return float(value)
    if isinstance(value, list):
        return {"list": value}
    return {"struct": value} if isinstance(value, dict) else value
