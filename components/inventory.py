"""What an artifact held when it was published, noted with it: whoever takes it from a cache, or reads it, compares."""

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

# JSON of the bytes of each file, by its path in the artifact.
FILES = "files"
# Logs and checkpoints, which no component reads: whoever needs the room may remove them.
_UNREAD = "ModelRun"
_PUSHED, _DESTINATION = "PushedModel", "pushed_destination"
_AT_ONCE = 32
# What TensorFlow and Beam say of bytes that have another checksum.
_LOST = ("DataLossError", "corrupted record", "Not a valid TFRecord")


def note(artifact: metadata_store_pb2.Artifact, type_name: str) -> None:
    """Notes the files of an artifact that was made."""
    if type_name != _UNREAD:
        sizes = StoredTree(artifact.uri).sizes()
        artifact.custom_properties[FILES].string_value = json.dumps(sizes, sort_keys=True)


def damage(artifact: types.Artifact) -> tuple[str, str]:
    """Finds a file that is not what it was when the artifact was published.

    Args:
        artifact: Of which nothing is said if nothing was noted; of a pushed model its destination is looked at, too.

    Returns:
        The file and what is wrong with it; both are empty if all are there.
    """
    noted = json.loads(artifact.get_string_custom_property(FILES) or "{}")
    pushed = artifact.get_string_custom_property(_DESTINATION) if artifact.type_name == _PUSHED else ""
    for folder in filter(None, (artifact.uri, pushed)):
        paths = [os.path.join(folder, name) for name in noted]
        # Of a store, each is a request.
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for path, size, found in zip(paths, noted.values(), pool.map(_size, paths)):
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
def whole(inputs: Artifacts) -> Iterator[None]:
    """Names the file of the inputs that is damaged: before they are read, and where reading them failed."""
    artifacts = [artifact for channel in inputs.values() for artifact in channel]
    for artifact in artifacts:
        path, what = damage(artifact)
        if path:
            raise _error(artifact, path, what)
    try:
        yield
    except Exception as error:
        said = "\n".join(f"{type(each).__name__}: {each}" for each in causes(error))
        if any(each in said for each in _LOST):
            for artifact in artifacts:
                if path := _unreadable(artifact):
                    raise _error(artifact, path, "its bytes do not have the checksum that is in it") from error
        raise


def reads_whole(do: Callable[..., Any]) -> Callable[..., Any]:
    """Makes an executor's `Do` name the file of its inputs that is damaged."""

    @functools.wraps(do)
    def call(self: Any, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> Any:
        with whole(input_dict):
            return do(self, input_dict, output_dict, exec_properties)

    return call


def _unreadable(artifact: types.Artifact) -> str:
    """The file of examples of ours that cannot be read to its end; every record bears a checksum."""
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
    todo = f"remove {artifact.uri}, and run it again: it is made anew"
    return damaged(path, what, "the file as it was published", todo)
