"""A checkpoint's step, and whether it can be read."""

from __future__ import annotations

import errno
import os
from typing import Optional

import tensorflow as tf

from tfx_estimator.pipeline.base.errors import TrainingError, UserCodeError
from tfx_estimator.pipeline.base.text import first_line
from tfx_estimator.pipeline.config.paths import is_address

# Errors of an unavailable checkpoint, which is not damaged.
_UNAVAILABLE = (
    OSError,
    MemoryError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.PermissionDeniedError,
    tf.errors.ResourceExhaustedError,
    tf.errors.UnauthenticatedError,
    tf.errors.UnavailableError,
)
_CHUNK_BYTES = 16 << 20
_MESSAGE_CHARACTERS = 200


def step_of(path: Optional[str]) -> int:
    """Returns the global step in a checkpoint's name; 0 for no checkpoint, -1 for a name without a step."""
    step = path.rsplit("-", 1)[-1] if path else "0"
    return int(step) if step.isdigit() else -1


def refuse_carried(why: str) -> UserCodeError:
    """Returns the error of a model that does not fit the weights and slots of an earlier day."""
    return UserCodeError(
        f"trainer.warm_start.blessed: the model is another than that of the earlier day: {why}",
        expected="the same network, features and optimizer",
        todo="change it back; or begin anew with it once: --set trainer.warm_start=null",
    )


def check_answers(folder: str) -> None:
    """Raises if a store does not answer: TensorFlow finds no checkpoint then, and a training would begin anew."""
    if not is_address(folder):
        return
    bucket = "/".join([*folder.split("/")[:3], ""])
    try:
        tf.io.gfile.exists(bucket)
    except tf.errors.PermissionDeniedError:
        return  # an account that may use the objects need not have access to the bucket itself
    except (OSError, tf.errors.OpError) as error:
        raise _unavailable(folder, error) from error


def damage(path: str) -> Optional[str]:
    """Returns why a checkpoint cannot be read; None if it can. Reads all of it: each tensor has a checksum."""
    try:
        return _damage(path)
    except TrainingError as error:
        # On a failing disk other checkpoints can be read; in an unavailable store none can.
        if _disk_error(error) is None or not _another_is_readable(path):
            raise
    try:
        return _damage(path)
    except TrainingError as error:
        if (cause := _disk_error(error)) is None:
            raise
        return first_line(cause)[:_MESSAGE_CHARACTERS]


def _damage(path: str) -> Optional[str]:
    """Like `damage`, without reading other checkpoints."""
    if (error := _read(path)) is None:
        return None
    # TensorFlow's reader drops the class of most errors, so `_lacks_files` tests whether the files are available. The
    # second read is for an error that was transient.
    if not _lacks_files(path) and (error := _read(path)) is None:
        return None
    return first_line(error)[:_MESSAGE_CHARACTERS]


def _read(path: str) -> Optional[Exception]:
    """Reads all tensors; returns the exception of TensorFlow, if any."""
    try:
        reader = tf.train.load_checkpoint(path)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except _UNAVAILABLE as error:
        raise _unavailable(path, error) from error
    except Exception as error:
        return error
    return None


def _lacks_files(path: str) -> bool:
    """Reads the files of a checkpoint; returns whether its index or its data files are missing."""
    try:
        data = tf.io.gfile.glob(f"{path}.data-*")
        for name in (f"{path}.index", *data):
            if tf.io.gfile.isdir(name):
                return True
            with tf.io.gfile.GFile(name, "rb") as file:
                while file.read(_CHUNK_BYTES):
                    pass
    except tf.errors.NotFoundError:
        return True
    except (OSError, tf.errors.OpError) as error:
        raise _unavailable(path, error) from error
    return not data


def _disk_error(found: TrainingError) -> Optional[Exception]:
    """Returns the cause if it is EIO, for which TensorFlow has no code."""
    cause = found.__cause__
    if isinstance(cause, tf.errors.UnknownError) or (isinstance(cause, OSError) and cause.errno == errno.EIO):
        return cause
    return None


def _another_is_readable(path: str) -> bool:
    try:
        found = tf.io.gfile.glob(os.path.join(os.path.dirname(path), "*.index"))
    except (OSError, tf.errors.OpError):
        return False
    for other in sorted({name[: -len(".index")] for name in found} - {path}):
        try:
            if _damage(other) is None:
                return True
        except TrainingError:
            continue
    return False


def _unavailable(path: str, error: Exception) -> TrainingError:
    found = TrainingError(
        f"checkpoint {path} cannot be read: {first_line(error)[:_MESSAGE_CHARACTERS]}",
        expected="a folder that this process can read",
        todo="give it access, or run the same again once the folder is available",
    )
    found.retryable = True
    return found
