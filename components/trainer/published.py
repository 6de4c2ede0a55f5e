"""Whether a training that became a `model_run` was published: only then does ML Metadata know of its model.

TFX publishes after the executor has returned. Should the process be killed in between, or the database be full, a
finished training is in no training folder, and is nobody's artifact. So the executor notes beside the training folder
what it has become; and the driver of the next run, which can ask ML Metadata, keeps the note of a training that was not
published, for its executor, and no other.
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

# Beside a training folder: how its note is called.
ENDING = ".moved"
_UNPUBLISHED = "unpublished"
# What a folder holds whose removal did not end. One that is removed may be made anew by tasks that end late, for a log.
_PARTS = ("*.index", "*.data-*-of-*")
_UNDER_WAY = (metadata_store_pb2.Execution.NEW, metadata_store_pb2.Execution.RUNNING)


def note(folder: str, model_run_uri: str) -> None:
    """Notes what a training is about to become."""
    write_whole(folder + ENDING, json.dumps({"model_run": model_run_uri, "at": time.time()}))


def forget(folder: str) -> None:
    """Removes the note, if there is one."""
    if fileio.exists(folder + ENDING):
        fileio.remove(folder + ENDING)


def became(folder: str, model_run_uri: str) -> str:
    """Returns the `model_run` that a training became without being published; empty if there is none.

    Args:
        model_run_uri: That of this execution: what has become that is not published.
    """
    told = read_json(folder + ENDING) or {}
    uri = str(told.get("model_run") or "")
    return uri if uri and (told.get(_UNPUBLISHED) or uri == model_run_uri or _is_rest(folder)) else ""


def _is_rest(folder: str) -> bool:
    """Does a folder hold parts of checkpoints still: in an object store its removal may not have ended."""
    if not fileio.exists(folder):
        return False
    names = [name for _, _, found in fileio.walk(folder) for name in found]
    return any(fnmatch.fnmatch(name, pattern) for name in names for pattern in _PARTS)


def look_back(root: str, handle: metadata.Metadata) -> None:
    """Has a run's executor know which trainings of earlier runs were not published."""
    paths = [path for path in paths_in(root) if path.endswith(ENDING)]
    if not paths:
        return
    with handle as connected:
        for path in paths:
            told = read_json(path) or {}
            if _is_under_way(told, connected.store):
                write_whole(path, json.dumps({**told, _UNPUBLISHED: True}))
            elif fileio.exists(path):
                fileio.remove(path)


def _is_under_way(told: dict[str, Any], store: Any) -> bool:
    """Is an execution, for all that ML Metadata knows, still at what has long become a `model_run`."""
    number = os.path.basename(str(told.get("model_run")))
    found = store.get_executions_by_id([int(number)]) if number.isdigit() else []
    # In a database that was made anew the number is another execution's, of later.
    return any(
        each.last_known_state in _UNDER_WAY and each.create_time_since_epoch / 1000 < told["at"] for each in found
    )
