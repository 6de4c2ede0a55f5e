"""Removes runs: their logs, and the artifacts that no other run uses, which are first marked in ML Metadata.

If the removal is killed, the run is still listed and can be removed again: its logs go last, and of these
`declaration.yaml`, by which a run is found. A later run takes no removed artifact from the cache.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Any

from ml_metadata.proto import metadata_store_pb2

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.task import COMPARABLE
from tfx_estimator.pipeline.folders import PipelineFolders, only_run, open_store, uris_here
from tfx_estimator.pipeline.report.source import DECLARATION, SUMMARY, Run
from tfx_estimator.pipeline.run.runs import executions, on_disk, pushed_here, read

# Property of an execution whose run was removed.
_REMOVED = "removed"
_OUTPUT = metadata_store_pb2.Event.OUTPUT
_DELETED = metadata_store_pb2.Artifact.DELETED


def remove(logs: Sequence[str]) -> int:
    """Removes runs of one pipeline, or none if one is still needed; returns the number of freed bytes."""
    home = os.path.dirname(os.path.dirname(logs[0]))
    folders = PipelineFolders(*os.path.split(home), option="WORKDIR")
    with only_run(folders):
        runs = [read(each) for each in logs]
        store = _store(home)
        if wrong := [f"{one_line(each)}: {why}" for each, why in _needed(runs, store).items()]:
            raise DeclarationError(
                "\n  ".join(["still needed:", *wrong]),
                expected="runs whose model is neither pushed nor the latest blessed one",
                todo="leave these out; or remove the pushed version first",
            )
        made = _mark_deleted(runs, store, folders) if store else []
        made += [folder for run in runs for folder in _failed_training(run)]
        paths = [path for path in made if _is_inside(path, home)]
        freed = on_disk([*paths, *logs])
        for path in paths:
            shutil.rmtree(path)
        for each in logs:
            _remove_logs(each)
    return freed


def find_unneeded(logs: Sequence[str]) -> list[str]:
    """Returns the runs of one pipeline that may be removed."""
    needed = _needed([read(each) for each in logs], _store(os.path.dirname(os.path.dirname(logs[0]))))
    return [each for each in logs if each not in needed]


def _store(home: str) -> Any:
    """Returns the pipeline's ML Metadata store, None without one."""
    metadata = PipelineFolders(*os.path.split(home), option="WORKDIR").metadata
    return open_store(metadata) if os.path.exists(metadata) else None


def _needed(runs: Sequence[Run], store: Any) -> dict[str, str]:
    """Returns why runs must stay, by log folder."""
    baselines = _baselines(store) if store else set()
    why = {}
    for run in runs:
        if pushed := pushed_here(run):
            why[run.logs] = f"its model is pushed: {one_line(pushed)}"
        elif executions(run, "ran") & baselines:
            why[run.logs] = "its model is the latest blessed one, which the next is compared with"
    return why


def _baselines(store: Any) -> set[int]:
    """Returns the executions that trained and blessed the latest blessed model of each `comparable` property."""
    blessings = {
        each.custom_properties["current_model_id"].int_value: each.id
        for each in store.get_artifacts_by_type("ModelBlessing")
        if each.state != _DELETED and each.custom_properties["blessed"].int_value == 1
    }
    latest = {
        each.custom_properties[COMPARABLE].string_value: each.id
        for each in sorted(store.get_artifacts_by_type("Model"), key=lambda each: each.id)
        if each.state != _DELETED and each.id in blessings
    }
    needed = [number for model in latest.values() for number in (model, blessings[model])]
    events = store.get_events_by_artifact_ids(needed) if needed else []
    return {each.execution_id for each in events if each.type == _OUTPUT}


def _mark_deleted(runs: Sequence[Run], store: Any, folders: PipelineFolders) -> list[str]:
    """Marks in ML Metadata the artifacts that no execution of a remaining run wrote or used; returns their folders."""
    own = store.get_executions_by_id(sorted({number for run in runs for number in executions(run)}))
    for each in own:
        each.custom_properties[_REMOVED].int_value = 1
    store.put_executions(own)
    removed = {each.id for each in store.get_executions() if each.custom_properties[_REMOVED].int_value}
    events = store.get_events_by_execution_ids([each.id for each in own]) if own else []
    written = {each.artifact_id for each in events if each.type == _OUTPUT}
    used = {
        each.artifact_id
        for each in (store.get_events_by_artifact_ids(sorted(written)) if written else ())
        if each.type == _OUTPUT and each.execution_id not in removed
    }
    unneeded = store.get_artifacts_by_id(sorted(written - used))
    for each in unneeded:
        each.state = _DELETED
    store.put_artifacts(unneeded)
    moved = uris_here(folders.metadata, folders.home)
    return [path for each in unneeded if os.path.isdir(path := moved.get(each.uri, each.uri))]


def _failed_training(run: Run) -> list[str]:
    """Returns the training folder that a failed training left for the next run to resume."""
    name = os.path.basename(run.summary.get("training_folder") or "")
    folder = os.path.join(run.home, "artifacts", "Trainer", "training", name)
    return [folder] if name and os.path.isdir(folder) else []


def _is_inside(path: str, home: str) -> bool:
    """Returns whether a path, with links resolved, is among the pipeline's artifacts; others are the user's."""
    return os.path.realpath(path).startswith(os.path.join(os.path.realpath(home), "artifacts", ""))


def _remove_logs(logs: str) -> None:
    last = [os.path.join(logs, name) for name in (SUMMARY, DECLARATION)]
    for entry in os.scandir(logs):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        elif entry.path not in last:
            os.remove(entry.path)
    for path in last:
        if os.path.lexists(path):
            os.remove(path)
    os.rmdir(logs)
