"""Records of a pipeline's executions: emulates a service's metadata store."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Optional

from tfx_estimator.pipeline.base.files import read_json, write_json, write_whole
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.folders import former_home, log_moved, rebased


def exists(path: str) -> bool:
    """Returns True if the file or folder exists."""
    return _fileio().exists(path) if is_address(path) else os.path.exists(path)


def read(path: str) -> Optional[str]:
    """Returns a file's text; None if it does not exist."""
    if not exists(path):
        return None
    if not is_address(path):
        with open(path, encoding="utf-8") as file:
            return file.read()
    with _fileio().open(path, "rb") as stored:
        return stored.read().decode()


def write(path: str, content: bytes) -> None:
    """Writes a file atomically, and makes its parent folders."""
    make_folder(os.path.dirname(path))
    if not is_address(path):
        write_whole(path, content)
        return
    with _fileio().open(path, "wb") as stored:
        stored.write(content)


def make_folder(path: str) -> None:
    """Makes a folder with its parents, unless it exists."""
    if is_address(path):
        _fileio().makedirs(path)
    else:
        os.makedirs(path, exist_ok=True)


def _fileio() -> Any:
    from tfx.dsl.io import fileio

    return fileio


# Vertex AI's resource name of an artifact; the last part is ours.
_NAME = "projects/local/locations/local/metadataStores/default/artifacts/{}"


@dataclass(frozen=True)
class Record:
    """A completed task.

    Args:
        number: The execution of the pipeline, from 1.
        key: The cache key; empty if it is never cached.
        outputs: Its artifacts as RuntimeArtifact JSON, by output.
        values: Its output parameters.
    """

    number: int
    task: str
    key: str
    outputs: dict[str, dict[str, Any]]
    values: dict[str, Any] = field(default_factory=dict)


class Records:
    """All completed tasks of a pipeline, oldest first; after its folder was moved, with the artifacts' new addresses.

    Args:
        folder: Of the records, a file each.
        home: The pipeline's folder, with the artifacts.
    """

    def __init__(self, folder: str, home: str) -> None:
        self._folder = folder
        self._home = home
        # As an ordered set.
        self._formers: dict[str, None] = {}
        os.makedirs(folder, exist_ok=True)
        # A file whose writing was interrupted has another suffix.
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json") and not name.startswith("."))
        found = [read_json(os.path.join(folder, name)) for name in names]
        self._all = [self._moved(Record(**each)) for each in found if each]
        log_moved(self._formers, home)

    @property
    def next_number(self) -> int:
        """The next execution's number."""
        return self._all[-1].number + 1 if self._all else 1

    def add(self, record: Record) -> None:
        """Stores a record."""
        write_json(os.path.join(self._folder, f"{record.number:06}-{record.task}.json"), asdict(record), indent=2)
        self._all.append(record)

    def cached(self, key: str) -> Optional[Record]:
        """Returns the latest record of a key whose artifacts still exist; None if there is none."""
        for record in reversed(self._all):
            if record.key == key and all(exists(artifact["uri"]) for artifact in record.outputs.values()):
                return record
        return None

    def artifacts(self) -> Iterator[Mapping[str, Any]]:
        """Yields all artifacts, newest first."""
        for record in reversed(self._all):
            yield from record.outputs.values()

    def _moved(self, record: Record) -> Record:
        return replace(record, outputs={key: self._here(record, each) for key, each in record.outputs.items()})

    def _here(self, record: Record, artifact: dict[str, Any]) -> dict[str, Any]:
        """Returns an artifact with its current address: at the former one there may be another of the same number."""
        place = rf"artifacts/local/[^/]+-{record.number}/{re.escape(record.task)}_1"
        if not (former := former_home(artifact["uri"], place, self._home)):
            return artifact
        self._formers[former] = None
        metadata = {
            name: rebased(value, former, self._home) if isinstance(value, str) else value
            for name, value in artifact.get("metadata", {}).items()
        }
        return {**artifact, "uri": rebased(artifact["uri"], former, self._home), "metadata": metadata}


def artifact_name(number: int, task: str, output: str) -> str:
    """Returns an artifact's unique name, as a service would assign it."""
    return _NAME.format(f"{number}.{task}.{output}")
