"""The training folder, which outlives an execution: a retry, or a longer training, resumes from its last checkpoint."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

from tfx.dsl.io import fileio

from tfx_estimator.components import read_files
from tfx_estimator.components.execution import Artifacts
from tfx_estimator.components.files import TRAINING, move_folder, poll_seconds, read_json, write_whole
from tfx_estimator.components.trainer import export, published
from tfx_estimator.components.trainer.estimator import checkpoints
from tfx_estimator.components.trainer.settings import OPERATION_KEY, SETTINGS_KEY, Settings
from tfx_estimator.pipeline.base.errors import TaskStalledError
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.runtime import PROFILES

FOLDER = "training"
# The length of training in `train_args`, and in the declared trainer.
_NUM_STEPS = "num_steps"
_LENGTHS = ("train_steps", "train_epochs")
# Entries of `distribution` that affect exports, but no training step.
_PACE = ("start_delay_secs", "throttle_secs")
_POLL_SECONDS = 0.2

logger = get_logger("trainer")


@dataclass(frozen=True)
class TrainingFolder:
    """The folder of one training.

    Args:
        uri: The same for a retry, and different if anything differs.
        key: The same for trainings that differ only in length.
        steps: Total steps to train; 0 if the data end training.
    """

    uri: str
    key: str
    steps: int

    @property
    def base(self) -> str:
        """The common prefix of the URIs for all lengths: since one resumes another, a lock or claim covers all."""
        return os.path.join(os.path.dirname(self.uri), self.key)


@dataclass(frozen=True)
class Earlier:
    """A training of another length; or a finished but unpublished one of the same length.

    Args:
        uri: Its training folder, or the `model_run` artifact that the folder became.
        steps: Its total steps.
        step: The step of its last checkpoint.
        finished: True for a `model_run` artifact, which must not change.
    """

    uri: str
    steps: int
    step: int
    finished: bool


def locate(
    model_run_uri: str, inputs: Artifacts, exec_properties: dict[str, Any], settings: Settings, root: str = ""
) -> TrainingFolder:
    """Returns the training folder for this declaration, data and source.

    Args:
        model_run_uri: The execution's `model_run` artifact; the folder is next to all of those.
        settings: The declared settings with tuned values, including the fingerprint of the source.
        root: Folder of the training folders, instead.
    """
    # A retry with longer deadlines, or more restarts, is the same training.
    deciding, _ = settings.split()
    properties = {key: value for key, value in exec_properties.items() if key != OPERATION_KEY}
    train_args = json.loads(properties.get("train_args") or "{}")
    num_steps = int(train_args.pop(_NUM_STEPS, 0))
    section = (deciding["declaration"] or {}).get("trainer") or deciding["arguments"] or {}
    declared = {name: section.pop(name, None) for name in _LENGTHS}
    for name in _PACE:
        section.get("distribution", {}).pop(name, None)
    properties.update({"train_args": train_args, SETTINGS_KEY: deciding})
    artifacts = {key: sorted(artifact.uri for artifact in channel) for key, channel in inputs.items()}
    text = json.dumps([artifacts, properties], sort_keys=True, default=str)
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    # `settling.with_steps` has set `num_steps` from epochs.
    steps = declared["train_steps"] or num_steps
    root = root or root_of(model_run_uri)
    return TrainingFolder(os.path.join(root, f"{key}-{steps}"), key, steps)


def root_of(model_run_uri: str) -> str:
    """Returns the default folder of the training folders: next to the `model_run` artifacts."""
    return os.path.join(os.path.dirname(os.path.dirname(model_run_uri)), FOLDER)


def prepare(
    folder: TrainingFolder,
    model_run_uri: str,
    exports: str,
    takes_over: bool,
    begin: Callable[[], None] = lambda: None,
    anew: bool = False,
) -> Optional[Earlier]:
    """Makes the folder, from an unpublished training or one of another length, if there is one.

    Args:
        model_run_uri: As for `locate`.
        exports: Folder for exports, in the training folder.
        takes_over: Whether to look for a training of another length.
        begin: Called before the folder is marked as prepared, for which the other tasks of a cluster wait.
        anew: Whether to resume no training.

    Returns:
        The earlier training, if any, also if its last checkpoint is beyond the end and it is not used: see `is_taken`.
    """
    found = None
    _remove_drafts(folder)
    if (anew or not _is_current(folder.uri)) and fileio.exists(folder.uri):
        fileio.rmtree(folder.uri)
    # Only a folder with a mark is a training; one without was left by a killed take-over.
    if not (anew or _read(folder.uri)):
        found = _unpublished(folder, model_run_uri) or (_earlier(folder, model_run_uri) if takes_over else None)
        if found and is_taken(found, folder.steps):
            if fileio.exists(folder.uri):
                fileio.rmtree(folder.uri)
            if found.finished:
                export.adopt(found.uri, folder.uri)
                if found.steps != folder.steps and fileio.exists(profiles := os.path.join(folder.uri, PROFILES)):
                    # They are of steps that this training does not do.
                    fileio.rmtree(profiles)
            else:
                move_folder(found.uri, folder.uri)
    # Only now: until the folder exists, the note leads to the unpublished training.
    published.remove(folder.uri)
    fileio.makedirs(folder.uri)
    begin()
    mark = _read(folder.uri)
    if mark.get("steps") != folder.steps:
        if mark and fileio.exists(exports):
            # They are of the training of another length, which was killed before it was published.
            fileio.rmtree(exports)
        write_whole(os.path.join(folder.uri, TRAINING), json.dumps({"key": folder.key, "steps": folder.steps}))
    return found


def wait(folder: TrainingFolder, seconds: float, task: str = "") -> None:
    """Waits until the chief of an external cluster has prepared the folder; `task` is this one's name."""
    deadline = time.monotonic() + seconds
    # The chief removes a folder that is not current. Files of one name may differ among machines.
    while _read(folder.uri).get("steps") != folder.steps or _changes(folder.uri, task):
        if time.monotonic() > deadline:
            error = TaskStalledError(
                f"the chief of this cluster has not made the training folder {folder.uri}",
                expected=f"the folder within {seconds:g} s (trainer.start_timeout)",
                todo="see the chief's output: if it has succeeded, training is done; or raise trainer.start_timeout",
            )
            # The cluster manager may restart this task.
            error.retryable = True
            raise error
        time.sleep(poll_seconds(folder.uri, _POLL_SECONDS))


def is_taken(earlier: Earlier, steps: int) -> bool:
    """Returns whether a training of `steps` resumes an earlier one."""
    # Equal steps always do: asynchronous workers overshoot by a few.
    return steps in (0, earlier.steps) or earlier.step <= steps


def publish(folder: TrainingFolder, model_run_uri: str) -> None:
    """Moves a finished training to the `model_run` artifact; after a kill it is complete at one of the two."""
    published.note(folder.uri, model_run_uri)
    if fileio.exists(model_run_uri):
        fileio.rmtree(model_run_uri)
    fileio.makedirs(os.path.dirname(model_run_uri))
    move_folder(folder.uri, model_run_uri)


def _remove_drafts(folder: TrainingFolder) -> None:
    """Removes incomplete copies and notes of killed runs."""
    for path in [] if is_address(folder.uri) else export.paths_in(os.path.dirname(folder.uri)):
        name = os.path.basename(path)
        if name.startswith(f"{folder.key}-") and name.endswith(export.DRAFT):
            fileio.rmtree(path)
        elif name.startswith(f".{folder.key}-"):
            fileio.remove(path)


def _unpublished(folder: TrainingFolder, model_run_uri: str) -> Optional[Earlier]:
    """Returns this training itself, if it is finished but unpublished."""
    uri = published.unpublished(folder.uri, model_run_uri)
    mark = _read(uri) if uri else {}
    if (mark.get("key"), mark.get("steps")) != (folder.key, folder.steps) or not _is_current(uri):
        return None
    return Earlier(uri, folder.steps, checkpoints.last_step(uri) or 0, finished=True)


def _earlier(folder: TrainingFolder, model_run_uri: str) -> Optional[Earlier]:
    """Returns the training of another length with the highest step, preferably not beyond this one's end."""
    found = []
    for place, finished in ((os.path.dirname(folder.uri), False), (os.path.dirname(model_run_uri), True)):
        for uri in export.paths_in(place):
            if uri.endswith(export.DRAFT):
                continue
            mark = _read(uri)
            # A folder that was taken over has its old mark until it is prepared.
            if mark.get("key") != folder.key or (finished and mark["steps"] == folder.steps):
                continue
            if (step := checkpoints.last_step(uri)) is not None and _is_current(uri):
                found.append(Earlier(uri, mark["steps"], step, finished))
    return max(found, key=lambda each: (is_taken(each, folder.steps), each.step, not each.finished), default=None)


def _is_current(folder: str) -> bool:
    """Returns False, and logs it, if a file that the user's code has read in a training has changed since."""
    if changed := _changes(folder):
        logger.info(f"{', '.join(changed)}: this training does not resume from {folder}")
    return not changed


def _changes(folder: str, task: str = "") -> list[str]:
    return read_files.changes(read_files.of_training(folder, task=task))


def _read(folder: str) -> dict[str, Any]:
    """Returns the mark that `prepare` wrote; empty if there is none."""
    return read_json(os.path.join(folder, TRAINING)) or {}
