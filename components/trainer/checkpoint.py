"""Of which step a checkpoint is, and whether it can be read."""

from __future__ import annotations

import errno
import os
from typing import Optional

import tensorflow as tf

from tfx_estimator.pipeline.base.errors import TrainingError
from tfx_estimator.pipeline.base.text import first_line

# A checkpoint that cannot be reached is not damaged.
_OUT_OF_REACH = (
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
# Of what an error says.
_TEXT = 200


def step_of(path: Optional[str]) -> int:
    """Returns the global step that a checkpoint's name tells; 0 for none, -1 where the name tells none."""
    step = path.rsplit("-", 1)[-1] if path else "0"
    return int(step) if step.isdigit() else -1


def damage(path: str) -> Optional[str]:
    """Says why a checkpoint cannot be read; None if it can. All of it is read: each tensor bears a checksum."""
    try:
        return _damage(path)
    except TrainingError as error:
        # Of a disk a part cannot be read; of a store that is away, nothing.
        if _read_error(error) is None or not _another_is_whole(path):
            raise
    try:
        return _damage(path)
    except TrainingError as error:
        if (cause := _read_error(error)) is None:
            raise
        return first_line(cause)[:_TEXT]


def _damage(path: str) -> Optional[str]:
    """As `damage`, which looks at the others of the folder as well."""
    if (error := _read(path)) is None:
        return None
    # TensorFlow's reader keeps of most errors the text alone: the files themselves tell whether they can be reached.
    # What they could not be for a moment is not seen a second time.
    if not _lacks_files(path) and (error := _read(path)) is None:
        return None
    return first_line(error)[:_TEXT]


def _read(path: str) -> Optional[Exception]:
    """Reads all tensors; returns what TensorFlow raised."""
    try:
        reader = tf.train.load_checkpoint(path)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except _OUT_OF_REACH as error:
        raise _out_of_reach(path, error) from error
    except Exception as error:
        return error
    return None


def _lacks_files(path: str) -> bool:
    """Reads the files of a checkpoint; tells whether there is no index, or no data."""
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
        raise _out_of_reach(path, error) from error
    return not data


def _read_error(found: TrainingError) -> Optional[Exception]:
    """What a disk answered that cannot read; TensorFlow has no code for that."""
    cause = found.__cause__
    if isinstance(cause, tf.errors.UnknownError) or (isinstance(cause, OSError) and cause.errno == errno.EIO):
        return cause
    return None


def _another_is_whole(path: str) -> bool:
    """Can another checkpoint of the same folder be read."""
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


def _out_of_reach(path: str, error: Exception) -> TrainingError:
    found = TrainingError(
        f"checkpoint {path} cannot be read: {first_line(error)[:_TEXT]}",
        expected="a folder that this process can read",
        todo="give it access, or run the same again once the folder can be reached",
    )
    found.retryable = True
    return found
