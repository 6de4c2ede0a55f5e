"""The folder that outlives one execution, so that a retry, or a longer training, goes on from the last checkpoint."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

from tfx.dsl.io import fileio

from tfx_estimator.components.execution import Artifacts
from tfx_estimator.components.files import TRAINING, move_folder, poll_seconds, read_json, write_whole
from tfx_estimator.components.trainer import export, published
from tfx_estimator.components.trainer.estimator import checkpoints
from tfx_estimator.components.trainer.settings import OPERATION_KEY, SETTINGS_KEY, Settings
from tfx_estimator.pipeline.base.errors import TaskStalledError
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.runtime import PROFILES

FOLDER = "training"
# What says how long to train, in `train_args` and in the declared trainer.
_NUM_STEPS = "num_steps"
_LENGTHS = ("train_steps", "train_epochs")
# Decides what is exported, and no step of training.
_PACE = ("start_delay_secs", "throttle_secs")
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class TrainingFolder:
    """The folder of one training.

    Args:
        uri: The same for a retry, another as soon as anything differs.
        key: The same for trainings that differ in nothing but their length.
        steps: To train in all; 0 if the data end it.
    """

    uri: str
    key: str
    steps: int

    @property
    def base(self) -> str:
        """What those of all lengths begin with: one goes on with another, and so keeps out others of any length."""
        return os.path.join(os.path.dirname(self.uri), self.key)


@dataclass(frozen=True)
class Earlier:
    """A training of another length; or of the same, which had ended and was not published.

    Args:
        uri: Its training folder, or the `model_run` artifact that this became.
        steps: That it was to train.
        step: Of its last checkpoint.
        finished: Is it a `model_run` artifact, which nobody may change.
    """

    uri: str
    steps: int
    step: int
    finished: bool


def locate(
    model_run_uri: str, inputs: Artifacts, exec_properties: dict[str, Any], settings: Settings, root: str = ""
) -> TrainingFolder:
    """Finds the training folder of this declaration, data and source.

    Args:
        model_run_uri: Where the execution's `model_run` artifact lies; the folder lies beside all of those.
        exec_properties: The execution's properties.
        settings: As they are declared, tuned values put in; they hold the fingerprint of the source.
        root: Where training folders lie instead.
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
    # Epochs were made steps before.
    steps = declared["train_steps"] or num_steps
    root = root or root_of(model_run_uri)
    return TrainingFolder(os.path.join(root, f"{key}-{steps}"), key, steps)


def root_of(model_run_uri: str) -> str:
    """Returns where the training folders lie, unless that is told: beside the `model_run` artifacts."""
    return os.path.join(os.path.dirname(os.path.dirname(model_run_uri)), FOLDER)


def prepare(
    folder: TrainingFolder,
    model_run_uri: str,
    exports: str,
    takes_over: bool,
    begin: Callable[[], None] = lambda: None,
) -> Optional[Earlier]:
    """Makes the folder: of one that was not published, or of a training of another length, where there is one.

    Args:
        model_run_uri: As for `locate`.
        exports: Folder in it, for what training exports.
        takes_over: Whether to look for a training of another length.
        begin: Called before it is noted that the folder is there, which the other tasks of a cluster wait for.

    Returns:
        What training goes on with. One whose last checkpoint lies beyond the end is returned as well, and left as it
        is: see `is_taken`. None if there is neither.
    """
    found = None
    _sweep(folder)
    # A folder is a training once it is noted which; what a take-over that was killed has left is none.
    if not _read(folder.uri):
        found = _unpublished(folder, model_run_uri) or (_earlier(folder, model_run_uri) if takes_over else None)
        if found and is_taken(found, folder.steps):
            if fileio.exists(folder.uri):
                fileio.rmtree(folder.uri)
            if found.finished:
                export.adopt(found.uri, folder.uri)
                if found.steps != folder.steps and fileio.exists(profiles := os.path.join(folder.uri, PROFILES)):
                    # Of steps that this training does not do.
                    fileio.rmtree(profiles)
            else:
                move_folder(found.uri, folder.uri)
    # Not before there is another one, or none is wanted: what is noted is that it was not published.
    published.forget(folder.uri)
    fileio.makedirs(folder.uri)
    begin()
    noted = _read(folder.uri)
    if noted.get("steps") != folder.steps:
        if noted and fileio.exists(exports):
            # By the training of another length, which was killed before it was published.
            fileio.rmtree(exports)
        write_whole(os.path.join(folder.uri, TRAINING), json.dumps({"key": folder.key, "steps": folder.steps}))
    return found


def wait(folder: TrainingFolder, seconds: float) -> None:
    """Waits until the chief of somebody else's cluster has prepared the folder."""
    deadline = time.monotonic() + seconds
    while _read(folder.uri).get("steps") != folder.steps:
        if time.monotonic() > deadline:
            error = TaskStalledError(
                f"the chief of this cluster has not made the training folder {folder.uri}",
                expected=f"it there within {seconds:g} s (trainer.start_timeout)",
                todo="see the chief's output: if it has ended well, all is done; or raise trainer.start_timeout",
            )
            # Whoever started this task may start it again.
            error.retryable = True
            raise error
        time.sleep(poll_seconds(folder.uri, _POLL_SECONDS))


def is_taken(earlier: Earlier, steps: int) -> bool:
    """Tells whether a training of so many steps goes on with an earlier one."""
    # Asynchronous workers do a few more than they were to.
    return steps in (0, earlier.steps) or earlier.step <= steps


def publish(folder: TrainingFolder, model_run_uri: str) -> None:
    """Makes a finished training the `model_run` artifact, so that a kill leaves it here or there."""
    published.note(folder.uri, model_run_uri)
    if fileio.exists(model_run_uri):
        fileio.rmtree(model_run_uri)
    fileio.makedirs(os.path.dirname(model_run_uri))
    move_folder(folder.uri, model_run_uri)


def _sweep(folder: TrainingFolder) -> None:
    """Removes what those that were killed had written of a copy, or of a note."""
    for path in [] if is_address(folder.uri) else export.paths_in(os.path.dirname(folder.uri)):
        name = os.path.basename(path)
        if name.startswith(f"{folder.key}-") and name.endswith(export.DRAFT):
            fileio.rmtree(path)
        elif name.startswith(f".{folder.key}-"):
            fileio.remove(path)


def _unpublished(folder: TrainingFolder, model_run_uri: str) -> Optional[Earlier]:
    """This training itself, where it had ended and was not published."""
    uri = published.became(folder.uri, model_run_uri)
    noted = _read(uri) if uri else {}
    if (noted.get("key"), noted.get("steps")) != (folder.key, folder.steps):
        return None
    return Earlier(uri, folder.steps, checkpoints.last_step(uri) or 0, finished=True)


def _earlier(folder: TrainingFolder, model_run_uri: str) -> Optional[Earlier]:
    """The training of another length that came furthest, but not too far; else any that came too far."""
    found = []
    for place, finished in ((os.path.dirname(folder.uri), False), (os.path.dirname(model_run_uri), True)):
        for uri in export.paths_in(place):
            if uri.endswith(export.DRAFT):
                continue
            noted = _read(uri)
            # A folder that was taken over says until it is prepared what it was.
            if noted.get("key") != folder.key or (finished and noted["steps"] == folder.steps):
                continue
            if (step := checkpoints.last_step(uri)) is not None:
                found.append(Earlier(uri, noted["steps"], step, finished))
    return max(found, key=lambda each: (is_taken(each, folder.steps), each.step, not each.finished), default=None)


def _read(folder: str) -> dict[str, Any]:
    """What `prepare` noted; nothing if it did not, or not all of the folder is there."""
    return read_json(os.path.join(folder, TRAINING)) or {}
