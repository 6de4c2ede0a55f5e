"""What the step tells the replicas of its custom job, and what the chief tells the step: files of the step's folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Optional

from tfx import types
from tfx.dsl.io import fileio
from tfx.types import artifact_utils

from tfx_estimator.components.files import write_whole

Artifacts = Mapping[str, list[types.Artifact]]
# The files.
_CALL, _MEASURED, _JOB = "call.json", "measured.json", "job.json"


def write_call(folder: str, inputs: Artifacts, outputs: Artifacts, exec_properties: Mapping[str, Any]) -> None:
    """Writes what the Trainer is to be executed with; what an earlier try measured is removed."""
    fileio.makedirs(folder)
    if fileio.exists(measured := os.path.join(folder, _MEASURED)):
        fileio.remove(measured)
    jsonify = artifact_utils.jsonify_artifact_dict
    call = {"inputs": jsonify(dict(inputs)), "outputs": jsonify(dict(outputs)), "properties": dict(exec_properties)}
    write_whole(os.path.join(folder, _CALL), json.dumps(call))


def read_call(folder: str) -> tuple[Artifacts, Artifacts, dict[str, Any]]:
    """Returns the inputs, outputs and properties of the Trainer."""
    call = _read(folder, _CALL) or {}
    parse = artifact_utils.parse_artifact_dict
    return parse(call["inputs"]), parse(call["outputs"]), call["properties"]


def write_measured(folder: str, outputs: Artifacts) -> None:
    """Writes the properties of what was made: they come to no artifact of the step's by themselves."""
    text = json.dumps({"outputs": artifact_utils.jsonify_artifact_dict(dict(outputs))})
    write_whole(os.path.join(folder, _MEASURED), text)


def take_measured(folder: str, outputs: Artifacts) -> bool:
    """Gives the step's artifacts the properties that the chief wrote; returns False if it wrote none."""
    if (measured := _read(folder, _MEASURED)) is None:
        return False
    for key, artifacts in artifact_utils.parse_artifact_dict(measured["outputs"]).items():
        for artifact, made in zip(outputs[key], artifacts):
            artifact.copy_from(made)
    return True


def write_job(folder: str, name: str) -> None:
    """Notes the job that was created, for a step that is tried again."""
    write_whole(os.path.join(folder, _JOB), json.dumps({"name": name}))


def read_job(folder: str) -> Optional[str]:
    """Returns the job that an earlier try of the step created, if there was one."""
    noted = _read(folder, _JOB)
    return str(noted["name"]) if noted else None


def _read(folder: str, name: str) -> Optional[dict[str, Any]]:
    if not fileio.exists(path := os.path.join(folder, name)):
        return None
    with fileio.open(path) as file:
        return json.loads(file.read())
