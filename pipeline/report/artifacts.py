"""Artifacts of a run's components, read from ML Metadata or from a service's JSON."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ml_metadata.proto import metadata_store_pb2

from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.task import COMPARABLE, Task
from tfx_estimator.pipeline.folders import open_store, uris_here
from tfx_estimator.pipeline.report.page import LeftOutError


@dataclass(frozen=True)
class Output:
    """One artifact."""

    uri: str
    properties: Mapping[str, Any]  # numbers and text by name

    def read_json(self, name: str) -> Any:
        """Reads a property that holds JSON; None without it."""
        text = self.properties.get(name)
        return json.loads(text) if text else None


# (component, name of the output) -> artifact.
Outputs = Mapping[tuple[str, str], Output]
# The nodes that describe the rows of a table: of days, one a day, StatisticsGen.7.
_STATISTICS = "StatisticsGen"
# The node that reads images.
EXAMPLE_GEN = "TfdsExampleGen"
# A service's prefix for a custom property that has the same name as one of the type.
_CUSTOM = "custom:"


def read_outputs(database: str, nodes: Mapping[int, str]) -> Outputs:
    """Reads the outputs of executions, written or cached, from a database of ML Metadata.

    Args:
        nodes: Components by execution id.
    """
    if not os.path.exists(database):
        raise LeftOutError(f"There is no {database}, which records where the artifacts are.")
    store = open_store(database)
    events = store.get_events_by_execution_ids(list(nodes)) if nodes else []
    written = [event for event in events if event.type == metadata_store_pb2.Event.OUTPUT]
    artifacts = {each.id: each for each in store.get_artifacts_by_id([event.artifact_id for event in written])}
    try:
        moved = _moved(database)
    except sqlite3.Error as error:
        raise LeftOutError(f"{database}, which records where the artifacts are: {error}.") from error
    return {
        (nodes[event.execution_id], event.path.steps[0].key): Output(
            moved.get(uri := artifacts[event.artifact_id].uri, uri), properties_of(artifacts[event.artifact_id])
        )
        for event in written
    }


def statistics_of(outputs: Outputs, days: int = 1) -> list[Output]:
    """Returns the statistics of a table's rows: of days, those of the last ones, in their order."""
    found = {node: made for (node, key), made in outputs.items() if key == "statistics"}
    by_day = {int(node.partition(".")[2] or 0): each for node, each in found.items() if node.startswith(_STATISTICS)}
    return [by_day[day] for day in sorted(by_day)][-max(days, 1) :]


def outputs_from_json(tasks: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Outputs:
    """Returns the outputs of a compiled pipeline's tasks, by task and output, from RuntimeArtifacts in JSON."""
    return {
        (task, key): Output(made.get("uri", ""), _properties_from_json(made.get("metadata", {})))
        for task, own in tasks.items()
        for key, made in own.items()
    }


def _properties_from_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    # JSON does not tell whole numbers from floats.
    values = {name: float(value) if isinstance(value, int) else value for name, value in metadata.items()}
    # A custom property overrides one of the type with the same name.
    order = sorted(values, key=lambda name: name.startswith(_CUSTOM))
    return {name.removeprefix(_CUSTOM): values[name] for name in order}


def need(outputs: Outputs, node: str, name: str) -> Output:
    """Returns an artifact that still exists; raises LeftOutError otherwise."""
    output = outputs.get((node, name))
    if output is None:
        raise LeftOutError(f"{node} made no {name} in this run.")
    if not is_address(output.uri) and not os.path.isdir(output.uri):
        have = "have" if name.endswith("s") else "has"
        raise LeftOutError(f"The {name} of {node} {have} been deleted: there is no {output.uri}.")
    return output


def need_examples(outputs: Outputs) -> Output:
    """Returns the examples that a run read: images, or rows of a table."""
    node = next((node for node, name in outputs if name == "examples"), EXAMPLE_GEN)
    return need(outputs, node, "examples")


def read_task(model: Output) -> Task | None:
    """Returns the task of a model that was trained on a table; None for images."""
    (data, *_) = (model.read_json(COMPARABLE) or {}).get("data") or [{}]
    return Task(**{**data, "names": tuple(data["names"])}) if "kind" in data else None


def _moved(database: str) -> dict[str, str]:
    """Returns where a moved folder's artifacts are now, by URI, without changing the database."""
    home = os.path.dirname(database)
    moved = uris_here(database, home)
    if os.path.isdir(os.path.join(home, "artifacts")):
        return moved
    # Without artifacts it may be the local folder of a pipeline whose artifacts are in an object store.
    return {uri: here for uri, here in moved.items() if not is_address(uri)}


def properties_of(artifact: metadata_store_pb2.Artifact | metadata_store_pb2.Execution) -> dict[str, Any]:
    """Returns the properties of an artifact or an execution: numbers and text by name."""
    found = {}
    for properties in (artifact.properties, artifact.custom_properties):
        for name, value in properties.items():
            if (kind := value.WhichOneof("value")) in ("string_value", "int_value", "double_value"):
                found[name] = getattr(value, kind)
    return found
