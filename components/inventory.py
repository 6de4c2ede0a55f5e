"""Records the files of a published artifact, and checks them when it is read or taken from the cache."""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Optional

import tensorflow as tf
from ml_metadata.proto import metadata_store_pb2
from tfx import types
from tfx.dsl.io import fileio

from tfx_estimator.components.execution import Artifacts
from tfx_estimator.components.pusher.object_store import GONE, StoredTree, size_of
from tfx_estimator.components.tfds_example_gen.properties import DATASET
from tfx_estimator.data.sources.files import damaged
from tfx_estimator.pipeline.base.errors import DamagedDataError
from tfx_estimator.pipeline.user_source.frames import causes

# A custom property: JSON of the bytes of each file, by its path in the artifact.
FILES = "files"
# Logs and checkpoints, which no component reads, may be removed to free space.
_UNREAD = "ModelRun"
_PUSHED, _DESTINATION = "PushedModel", "pushed_destination"
_AT_ONCE = 32
# Errors of TensorFlow and Beam about a wrong checksum.
_LOST = ("DataLossError", "corrupted record", "Not a valid TFRecord")


def note(artifact: metadata_store_pb2.Artifact, type_name: str) -> None:
    """Records the files of a new artifact."""
    if type_name != _UNREAD:
        sizes = StoredTree(artifact.uri).sizes()
        artifact.custom_properties[FILES].string_value = json.dumps(sizes, sort_keys=True)


def damage(artifact: types.Artifact) -> tuple[str, str]:
    """Finds a file that has changed since the artifact was published, for a pushed model in its destination, too.

    Returns:
        The file and its damage; both are empty if all files are intact, or none were recorded.
    """
    recorded = json.loads(artifact.get_string_custom_property(FILES) or "{}")
    pushed = artifact.get_string_custom_property(_DESTINATION) if artifact.type_name == _PUSHED else ""
    for folder in filter(None, (artifact.uri, pushed)):
        paths = [os.path.join(folder, name) for name in recorded]
        # In a store, each is a request.
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for path, size, found in zip(paths, recorded.values(), pool.map(_size, paths)):
                if found is None:
                    return path, "it is gone"
                if found != size:
                    return path, f"it has {found:,} bytes of {size:,}"
    return "", ""


def _size(path: str) -> Optional[int]:
    try:
        return size_of(fileio.stat(path))
    except GONE:
        return None


@contextlib.contextmanager
def checked_inputs(inputs: Artifacts) -> Iterator[None]:
    """Raises an error that names a damaged file of the inputs: before they are read, and if reading them fails."""
    artifacts = [artifact for channel in inputs.values() for artifact in channel]
    for artifact in artifacts:
        path, what = damage(artifact)
        if path:
            raise _error(artifact, path, what)
    try:
        yield
    except Exception as error:
        messages = "\n".join(f"{type(each).__name__}: {each}" for each in causes(error))
        if any(each in messages for each in _LOST):
            for artifact in artifacts:
                if path := _unreadable(artifact):
                    raise _error(artifact, path, "its bytes do not match its checksum") from error
        raise


def checks_inputs(do: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps an executor's `Do` in `checked_inputs`."""

    @functools.wraps(do)
    def call(self: Any, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> Any:
        with checked_inputs(input_dict):
            return do(self, input_dict, output_dict, exec_properties)

    return call


def _unreadable(artifact: types.Artifact) -> str:
    """Returns the file of our examples that cannot be read to its end, if there is one; records have checksums."""
    if not artifact.get_string_custom_property(DATASET):
        return ""
    for path in sorted(fileio.glob(os.path.join(artifact.uri, "Split-*", "*"))):
        try:
            for _ in tf.compat.v1.io.tf_record_iterator(path):
                pass
        except tf.errors.DataLossError:
            return path
    return ""


def _error(artifact: types.Artifact, path: str, what: str) -> DamagedDataError:
    todo = f"remove {artifact.uri}, and run it again: that recreates it"
    return damaged(path, what, "the file as it was published", todo)
