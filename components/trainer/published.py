"""Finds finished trainings whose `model_run` was not published to ML Metadata.

TFX publishes after the executor returns. If the process is killed in between, or the database is full, a finished
training is neither in a training folder nor a published artifact. So the executor writes a note next to the training
folder with the URI of its `model_run`. The driver of the next run, which has access to ML Metadata, marks the notes of
unpublished trainings for its executor, and removes all others.
"""

from __future__ import annotations

import fnmatch
import json
import os
import time
from typing import Any

from ml_metadata.proto import metadata_store_pb2
from tfx.dsl.io import fileio
from tfx.orchestration import metadata

from tfx_estimator.components.files import read_json, write_whole
from tfx_estimator.components.trainer.export import paths_in

# Suffix of a training folder's note.
ENDING = ".moved"
_UNPUBLISHED = "unpublished"
# Files in a folder that was partly removed. After a full removal, tasks that end late may create it again for a log.
_PARTS = ("*.index", "*.data-*-of-*")
_RUNNING = (metadata_store_pb2.Execution.NEW, metadata_store_pb2.Execution.RUNNING)


def note(folder: str, model_run_uri: str) -> None:
    """Writes the note of a training that is about to become a `model_run`."""
    write_whole(folder + ENDING, json.dumps({"model_run": model_run_uri, "at": time.time()}))


def remove(folder: str) -> None:
    """Removes the note, if there is one."""
    if fileio.exists(folder + ENDING):
        fileio.remove(folder + ENDING)


def unpublished(folder: str, model_run_uri: str) -> str:
    """Returns the URI of the unpublished `model_run` that a training became; empty if there is none.

    Args:
        model_run_uri: That of this execution, which is not published yet.
    """
    record = read_json(folder + ENDING) or {}
    uri = str(record.get("model_run") or "")
    return uri if uri and (record.get(_UNPUBLISHED) or uri == model_run_uri or _is_partly_removed(folder)) else ""


def _is_partly_removed(folder: str) -> bool:
    """True if a folder still has parts of checkpoints: in an object store its removal may have been interrupted."""
    if not fileio.exists(folder):
        return False
    names = [name for _, _, found in fileio.walk(folder) for name in found]
    return any(fnmatch.fnmatch(name, pattern) for name in names for pattern in _PARTS)


def mark_unpublished(root: str, handle: metadata.Metadata) -> None:
    """Marks the notes of unpublished trainings of earlier runs for this run's executor; removes all other notes."""
    paths = [path for path in paths_in(root) if path.endswith(ENDING)]
    if not paths:
        return
    with handle as connected:
        for path in paths:
            record = read_json(path) or {}
            if _is_running(record, connected.store):
                write_whole(path, json.dumps({**record, _UNPUBLISHED: True}))
            elif fileio.exists(path):
                fileio.remove(path)


def _is_running(record: dict[str, Any], store: Any) -> bool:
    """True if ML Metadata still has the execution of a note as new or running."""
    number = os.path.basename(str(record.get("model_run")))
    found = store.get_executions_by_id([int(number)]) if number.isdigit() else []
    # In a recreated database the number belongs to another, later execution.
    return any(
        each.last_known_state in _RUNNING and each.create_time_since_epoch / 1000 < record["at"] for each in found
    )
