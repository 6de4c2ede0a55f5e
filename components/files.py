"""Writes files atomically, and moves folders with artifacts, on this machine or in an object store.

An object store writes files atomically; but a folder is only a prefix of names, and cannot be moved in one step.
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

# The record of the training that a folder belongs to.
TRAINING = "training.json"
# The declaration of a training, next to its checkpoints.
DECLARATION = "declaration.json"
# Delays between attempts to read a file in a store: TensorFlow's client caches a file's size for 5 s.
RETRY_SECONDS = (0.25, 0.5, 1.0, 2.0, 4.0)
# Between two polls of a store: each is a request that costs money.
STORE_POLL_SECONDS = 2.0
# Copied last: no model is loaded, and no training resumed, without them.
LAST = ("fingerprint.pb", "saved_model.pbtxt", "saved_model.pb", TRAINING)

_ERROR = ".error"

logger = get_logger("files")


def write_whole(path: str, content: Union[str, bytes]) -> None:
    """Writes or replaces a file atomically, even if this process is killed; `path` may be a remote address."""
    if not is_address(path):
        files.write_whole(path, content)
        return
    with fileio.open(path, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)


def read_json(path: str, waits: tuple[float, ...] = (), kind: type = dict) -> Any:
    """Reads a JSON file that another process may be overwriting; None if there is no file, or only a garbled one.

    From a bucket, a read may be truncated at first to the size of the file's previous version.

    Args:
        waits: Delays between attempts to read a file on this machine, in seconds.
        kind: The type of its value.
    """
    for seconds in (*(RETRY_SECONDS if is_address(path) else waits), None):
        try:
            if not fileio.exists(path):
                return None
            with fileio.open(path, "rb") as file:
                value = files.parsed(file.read(), kind)
        except Exception:  # stores raise any type
            if seconds is None:
                raise
            value = None
        if value is not None or seconds is None:
            return value
        time.sleep(seconds)
    return None


def write_error(folder: str, error: TfxEstimatorError) -> None:
    """Writes an error of a Beam worker to a file: most runners return errors only as text."""
    write_whole(os.path.join(folder, f"{uuid.uuid4().hex}{_ERROR}"), json.dumps(to_json(error)))


def first_error(folder: str) -> Optional[TfxEstimatorError]:
    """Reads the first error that a worker has written; None if there is none."""
    for path in sorted(fileio.glob(os.path.join(folder, f"*{_ERROR}"))):
        if fields := read_json(path):
            return from_json(fields)
    return None


def poll_seconds(path: str, here: float) -> float:
    """Returns the delay between two polls of another process's file."""
    return STORE_POLL_SECONDS if is_address(path) else here


def move_folder(source: str, target: str) -> None:
    """Moves a folder atomically; in an object store, or to another file system, copies it before removing it.

    The source's LAST files are removed first, so that it does not count as complete. A source that cannot be removed is
    not an error.

    Args:
        target: Must not exist, except as the remains of an earlier move that was killed.
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
    except Exception as error:  # stores raise any type
        # Not raised: TFX removes the outputs of a failed execution, and the copy may be the only complete one.
        logger.warning(f"{source} was moved to {target}, but the rest of it cannot be removed: {error}")


def copy_stored(source: str, target: str) -> None:
    """Copies the files of a folder, replacing existing ones; the LAST files come last."""
    names = [
        os.path.relpath(os.path.join(top, name), source) for top, _, found in fileio.walk(source) for name in found
    ]
    for name in sorted(names, key=comes_last):
        fileio.makedirs(os.path.dirname(os.path.join(target, name)))
        fileio.copy(os.path.join(source, name), os.path.join(target, name), overwrite=True)


def _device(folder: str) -> int:
    """Returns the file system that a local folder is on, or will be."""
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return os.stat(folder or ".").st_dev


def comes_last(path: str) -> tuple[int, str]:
    """Returns the key that sorts a folder's files in the order of copying."""
    name = os.path.basename(path)
    return (LAST.index(name) + 1 if name in LAST else 0, path)
