"""Files and folders where the artifacts lie, on this machine or elsewhere, that are there whole or not at all.

An object store writes a file whole; but a folder is there no more than a prefix of names, and cannot be moved in one
step.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from typing import Any, Optional, Union

from tfx.dsl.io import fileio

from tfx_estimator.pipeline.base import files
from tfx_estimator.pipeline.base.errors import TfxEstimatorError, from_json, to_json
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.config.paths import is_address

# Notes which training a folder is of.
TRAINING = "training.json"
# The declaration of a training, beside its checkpoints.
DECLARATION = "declaration.json"
# Between tries to read a file in a store. TensorFlow's client of a bucket believes in the old size for 5 s.
RETRY_SECONDS = (0.25, 0.5, 1.0, 2.0, 4.0)
# Between two looks at what others write to a store: each is a request, and is paid for.
STORE_POLL_SECONDS = 2.0
# Without which nothing loads the model, or goes on with the training, around them: they come last.
LAST = ("fingerprint.pb", "saved_model.pbtxt", "saved_model.pb", TRAINING)

_ERROR = ".error"

logger = get_logger("files")


def write_whole(path: str, content: Union[str, bytes]) -> None:
    """Writes a file, or leaves what was there, however this process ends.

    Args:
        path: The file, as TFX's file systems know it; a file that is there is replaced.
        content: Text becomes UTF-8.
    """
    if not is_address(path):
        files.write_whole(path, content)
        return
    with fileio.open(path, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)


def read_json(path: str, waits: tuple[float, ...] = ()) -> Any:
    """Reads a file that others may be overwriting.

    In a bucket no more of it may come at first than the old one had.

    Args:
        waits: Between tries to read one of this machine, in seconds.

    Returns:
        What it holds; None if there is none.
    """
    for seconds in (*(RETRY_SECONDS if is_address(path) else waits), None):
        try:
            if not fileio.exists(path):
                return None
            with fileio.open(path) as file:
                return json.loads(file.read())
        except Exception:  # which is the store's
            if seconds is None:
                raise
            time.sleep(seconds)
    return None


def write_error(folder: str, error: TfxEstimatorError) -> None:
    """Leaves an error of a worker of Beam's: most of its runners hand one back as text only."""
    write_whole(os.path.join(folder, f"{uuid.uuid4().hex}{_ERROR}"), json.dumps(to_json(error)))


def first_error(folder: str) -> Optional[TfxEstimatorError]:
    """Makes an error that a worker has left; None if there is none."""
    for path in sorted(fileio.glob(os.path.join(folder, f"*{_ERROR}"))):
        with fileio.open(path) as file:
            return from_json(json.load(file))
    return None


def poll_seconds(path: str, here: float) -> float:
    """Returns how long to wait between two looks at what another process writes."""
    return STORE_POLL_SECONDS if is_address(path) else here


def move_folder(source: str, target: str) -> None:
    """Moves a folder in one step; in an object store, or to another file system, nothing goes before all is there.

    Nor is it taken for whole from then on. What of it cannot be removed stays: it has been moved all the same.

    Args:
        target: What it becomes; it must not be there, or be what an earlier move that was killed has left.
    """
    if not is_address(source) and not is_address(target) and _device(source) == _device(os.path.dirname(target)):
        fileio.rename(source, target)
        return
    copy_stored(source, target)
    try:
        for path in [os.path.join(source, name) for name in reversed(LAST)]:
            if fileio.exists(path):
                fileio.remove(path)
        if fileio.exists(source):
            fileio.rmtree(source)
    except Exception as error:  # which is the store's
        # Whoever fails has TFX remove what was published, which may be all that is whole now.
        logger.warning(f"{source} has become {target}, and what is left of it cannot be removed: {error}")


def copy_stored(source: str, target: str) -> None:
    """Copies the files of a folder; last those without which nobody takes it for whole.

    Args:
        target: What it becomes; files that are there are replaced.
    """
    names = [
        os.path.relpath(os.path.join(top, name), source) for top, _, found in fileio.walk(source) for name in found
    ]
    for name in sorted(names, key=comes_last):
        fileio.makedirs(os.path.dirname(os.path.join(target, name)))
        fileio.copy(os.path.join(source, name), os.path.join(target, name), overwrite=True)


def _device(folder: str) -> int:
    """The file system that a folder of this machine is on, or will be."""
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return os.stat(folder or ".").st_dev


def comes_last(path: str) -> tuple[int, str]:
    """Returns a key that sorts the files of a folder as they are to be copied."""
    name = os.path.basename(path)
    return (LAST.index(name) + 1 if name in LAST else 0, path)
