"""Records the files of a published artifact, and checks them when it is read or taken from the cache.

Sizes are always compared. Checksums are compared of small artifacts and of pushed models, of others when a component
reads them: a cached run does not read a big artifact again. Big examples are compared if reading them fails, because
records have checksums of their own. An object store checks what it keeps itself, and a download is dear.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Optional

from ml_metadata.proto import metadata_store_pb2
from tfx import types
from tfx.dsl.io import fileio

from tfx_estimator.components.execution import Artifacts
from tfx_estimator.components.pusher.object_store import GONE, StoredTree, size_of
from tfx_estimator.components.pusher.versions import chunks
from tfx_estimator.pipeline.base.errors import DamagedDataError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.user_source.frames import causes

# A custom property: JSON of the bytes and the checksum of each file, by its path in the artifact; of the bytes alone in
# a store, and as written by earlier releases.
FILES = "files"
# Bytes of an artifact whose checksums are compared whenever it is taken from the cache or read.
_SMALL = 1 << 26
# Logs and checkpoints, which no component reads, may be removed to free space.
_UNREAD = "ModelRun"
_PUSHED, _DESTINATION = "PushedModel", "pushed_destination"
_EXAMPLES = "Examples"
_AT_ONCE = 32
_EXPECTED = "the file as it was published"
# Errors of reading examples. After others they are not read again, because there may be terabytes.
_LOST = ("DataLossError", "corrupted record", "Not a valid TFRecord", "while decompressing", DamagedDataError.__name__)


class DamagedInputError(DamagedDataError):
    """The file at `path`, of an input, has changed since it was published."""

    path = ""


def note(artifact: metadata_store_pb2.Artifact, type_name: str) -> None:
    """Records the files of a new artifact, if that is not done yet."""
    if type_name != _UNREAD and FILES not in artifact.custom_properties:
        files: dict[str, Any] = dict(StoredTree(artifact.uri).sizes())
        if not is_address(artifact.uri):
            paths = [os.path.join(artifact.uri, name) for name in files]
            files = {name: [size, sum_] for (name, size), sum_ in zip(files.items(), _all(_checksum, paths))}
        artifact.custom_properties[FILES].string_value = json.dumps(files, sort_keys=True)


def damage(artifact: types.Artifact, whole: bool = False) -> tuple[str, str]:
    """Finds a file that has changed since the artifact was published, for a pushed model in its destination, too.

    Args:
        whole: Whether to compare the checksums of a big artifact, too.

    Returns:
        The file and its damage; both are empty if all files are intact, or none were recorded.
    """
    recorded = json.loads(artifact.get_string_custom_property(FILES) or "{}")
    files = [(name, *(each if isinstance(each, list) else (each, None))) for name, each in recorded.items()]
    is_pushed = artifact.type_name == _PUSHED
    pushed = artifact.get_string_custom_property(_DESTINATION) if is_pushed else ""
    whole = whole or is_pushed or sum(size for _, size, _ in files) <= _SMALL
    places = [
        (os.path.join(folder, name), size, checksum if whole and not is_address(folder) else None)
        for folder in filter(None, (artifact.uri, pushed))
        for name, size, checksum in files
    ]
    for (path, *_), what in zip(places, _all(_change, places)):
        if what:
            return path, what
    return "", ""


def _change(recorded: tuple[str, int, Optional[int]]) -> str:
    path, size, checksum = recorded
    try:
        if (found := size_of(fileio.stat(path))) != size:
            return f"it has {found:,} bytes of {size:,}"
        if checksum is not None and _checksum(path) != checksum:
            return "its bytes have changed since it was published"
    except GONE:
        return "it is gone"
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    return ""


def _checksum(path: str) -> int:
    """Returns a CRC-32, of the standard library: 1 GiB/s on a core, twice as fast as SHA-256, and as sure here."""
    found = 0
    with open(path, "rb") as file:
        for piece in chunks(file):
            found = zlib.crc32(piece, found)
    return found


def _all(do: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
    # In a store, each is a request; and files are read on all cores.
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(do, values))


@contextlib.contextmanager
def checked_inputs(inputs: Artifacts) -> Iterator[None]:
    """Raises DamagedInputError for a damaged file of the inputs: before they are read, and if reading them fails."""
    artifacts = [artifact for channel in inputs.values() for artifact in channel]
    for artifact in artifacts:
        _check(artifact, whole=artifact.type_name != _EXAMPLES)
    try:
        yield
    except Exception as error:
        messages = "\n".join(f"{type(each).__name__}: {each}" for each in causes(error))
        for artifact in artifacts if any(each in messages for each in _LOST) else ():
            _check(artifact, whole=True, cause=error)
        raise


def _check(artifact: types.Artifact, whole: bool, cause: Optional[Exception] = None) -> None:
    path, what = damage(artifact, whole)
    if path:
        todo = f"remove {artifact.uri}, and run it again: that recreates it"
        error = DamagedInputError(f"damaged file {one_line(path)}: {what}", expected=_EXPECTED, todo=todo)
        error.path = path
        raise error from cause


def put_aside(path: str) -> None:
    """Renames a damaged file, so that a run whose cache has its artifact makes that again."""
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, f"{path}.damaged")


def checks_inputs(do: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps an executor's `Do` in `checked_inputs`."""

    @functools.wraps(do)
    def call(self: Any, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> Any:
        with checked_inputs(input_dict):
            return do(self, input_dict, output_dict, exec_properties)

    return call
