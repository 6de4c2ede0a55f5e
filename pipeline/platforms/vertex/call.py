"""What the step tells the replicas of its custom job, and what the chief tells the step: files of the step's folder."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, Optional

from tfx import types
from tfx.dsl.io import fileio
from tfx.types import artifact_utils

from tfx_estimator.components.files import write_whole
from tfx_estimator.pipeline.base import errors
from tfx_estimator.pipeline.base.errors import TfxEstimatorError, TrainingError

Artifacts = Mapping[str, list[types.Artifact]]
# The files.
_CALL, _MEASURED, _JOB = "call.json", "measured.json", "job.json"
# A folder of files: the state of each replica that has begun, and has not finished its part.
_REPLICAS = "replicas"


def write_call(folder: str, inputs: Artifacts, outputs: Artifacts, exec_properties: Mapping[str, Any]) -> None:
    """Writes what the Trainer is to be executed with; what an earlier try measured, or failed by, is removed.

    Args:
        folder: Of the call, in the pipeline's bucket.
    """
    fileio.makedirs(folder)
    if fileio.exists(measured := os.path.join(folder, _MEASURED)):
        fileio.remove(measured)
    if fileio.exists(replicas := os.path.join(folder, _REPLICAS)):
        fileio.rmtree(replicas)
    jsonify = artifact_utils.jsonify_artifact_dict
    call = {"inputs": jsonify(dict(inputs)), "outputs": jsonify(dict(outputs)), "properties": dict(exec_properties)}
    write_whole(os.path.join(folder, _CALL), json.dumps(call))


def read_call(folder: str) -> tuple[Artifacts, Artifacts, dict[str, Any]]:
    """Returns the inputs, outputs and properties of the Trainer."""
    call = _read(folder, _CALL) or {}
    parse = artifact_utils.parse_artifact_dict
    return parse(call["inputs"]), parse(call["outputs"]), call["properties"]


def write_measured(folder: str, outputs: Artifacts) -> None:
    """Writes the properties of what was made: they come to no artifact of the step's by themselves.

    Args:
        outputs: Of the Trainer, when it has trained.
    """
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
    """Notes the job that was created, for a step that is tried again.

    Args:
        name: Of the job, as the service has it.
    """
    write_whole(os.path.join(folder, _JOB), json.dumps({"name": name}))


def read_job(folder: str) -> Optional[str]:
    """Returns the job that an earlier try of the step created, if there was one."""
    noted = _read(folder, _JOB)
    return str(noted["name"]) if noted else None


@contextlib.contextmanager
def told(folder: str, replica: str) -> Iterator[None]:
    """Leaves a note of what the context fails by, and one of a replica that ends without a word.

    Args:
        replica: For example `worker-0`.
    """
    path = os.path.join(folder, _REPLICAS, f"{replica}.json")
    fileio.makedirs(os.path.dirname(path))
    write_whole(path, json.dumps({"type": ""}))
    try:
        yield
    except Exception as error:
        said = error if isinstance(error, TfxEstimatorError) else TrainingError(f"{replica} failed: {error!r}")
        write_whole(path, json.dumps(errors.to_json(said)))
        raise
    fileio.remove(path)


def read_failures(folder: str) -> Optional[list[TfxEstimatorError]]:
    """Returns what replicas have failed by for reasons of their own; None if none of them has begun.

    One that was killed has said nothing; one that was ended, or has lost another, would go on.
    """
    if not fileio.exists(replicas := os.path.join(folder, _REPLICAS)):
        return None
    found = []
    for name in sorted(fileio.listdir(replicas)):
        said = _read(replicas, name)
        if said and said["type"] not in ("", errors.StoppedError.__name__) and not said["retryable"]:
            told = (said["what"], said["expected"], said["todo"])
            found.append(errors.from_json(said) or TrainingError(told[0], expected=told[1], todo=told[2]))
    return found


def _read(folder: str, name: str) -> Optional[dict[str, Any]]:
    if not fileio.exists(path := os.path.join(folder, name)):
        return None
    with fileio.open(path) as file:
        return json.loads(file.read())
