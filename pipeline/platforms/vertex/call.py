"""Files in the step's folder, exchanged between the step and the replicas of its custom job."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, Optional

from tfx import types
from tfx.dsl.io import fileio
from tfx.types import artifact_utils

from tfx_estimator.components.files import read_json, write_whole
from tfx_estimator.pipeline.base import errors
from tfx_estimator.pipeline.base.errors import TfxEstimatorError, TrainingError

Artifacts = Mapping[str, list[types.Artifact]]
_CALL, _MEASURED, _JOB = "call.json", "measured.json", "job.json"
# A folder with a file of each replica that has started, and has not succeeded.
_REPLICAS = "replicas"


def write_call(folder: str, inputs: Artifacts, outputs: Artifacts, exec_properties: Mapping[str, Any]) -> None:
    """Writes the Trainer's arguments, and removes the results and errors of an earlier try.

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
    """Writes the properties of the Trainer's output artifacts, for the step's own.

    Args:
        outputs: Of the Trainer, after training.
    """
    text = json.dumps({"outputs": artifact_utils.jsonify_artifact_dict(dict(outputs))})
    write_whole(os.path.join(folder, _MEASURED), text)


def take_measured(folder: str, outputs: Artifacts) -> bool:
    """Copies the properties that the chief wrote to the step's artifacts; returns False if it wrote none."""
    if (measured := _read(folder, _MEASURED)) is None:
        return False
    for key, artifacts in artifact_utils.parse_artifact_dict(measured["outputs"]).items():
        for artifact, made in zip(outputs[key], artifacts):
            artifact.copy_from(made)
    return True


def write_job(folder: str, name: str) -> None:
    """Records the created job, for a retry of the step.

    Args:
        name: The job's resource name.
    """
    write_whole(os.path.join(folder, _JOB), json.dumps({"name": name}))


def read_job(folder: str) -> Optional[str]:
    """Returns the job that an earlier try of the step created, if there was one."""
    record = _read(folder, _JOB)
    return str(record["name"]) if record else None


@contextlib.contextmanager
def reported(folder: str, replica: str) -> Iterator[None]:
    """Writes the context's error to the replica's file, which has no error type if the replica was killed.

    Args:
        replica: For example `worker-0`.
    """
    path = os.path.join(folder, _REPLICAS, f"{replica}.json")
    fileio.makedirs(os.path.dirname(path))
    write_whole(path, json.dumps({"type": ""}))
    try:
        yield
    except Exception as error:
        typed = error if isinstance(error, TfxEstimatorError) else TrainingError(f"{replica} failed: {error!r}")
        write_whole(path, json.dumps(errors.to_json(typed)))
        raise
    fileio.remove(path)


def read_failures(folder: str) -> Optional[list[TfxEstimatorError]]:
    """Returns the replicas' own errors; None if no replica has started.

    Replicas that were killed, received a signal, or lost another one have no error of their own.
    """
    if not fileio.exists(replicas := os.path.join(folder, _REPLICAS)):
        return None
    found = []
    for name in sorted(fileio.listdir(replicas)):
        error = _read(replicas, name)
        if error and error["type"] not in ("", errors.StoppedError.__name__) and not error["retryable"]:
            unknown = TrainingError(error["what"], expected=error["expected"], todo=error["todo"])
            found.append(errors.from_json(error) or unknown)
    return found


def _read(folder: str, name: str) -> Optional[dict[str, Any]]:
    return read_json(os.path.join(folder, name))
