"""Keeps which files the user's code has read, with their hashes, and finds those that have changed since."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping

from tfx import types
from tfx.dsl.io import fileio

from tfx_estimator.components.execution import Artifacts
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.user_source import opened

# A custom property of an output: JSON of the hashes by path.
_READ_FILES = "read_files"
_NOTES = ".read.jsonl"


def folders_of(*artifacts: Artifacts) -> list[str]:
    """Returns the folders of an execution's artifacts, whose files need no notes."""
    return [artifact.uri for each in artifacts for channel in each.values() for artifact in channel]


def of_training(*folders: str) -> dict[str, str]:
    """Returns the hashes of the files that the tasks of trainings have read, by path."""
    found: dict[str, str] = {}
    logs = [place for folder in folders if fileio.exists(place := os.path.join(folder, "logs"))]
    for path in sorted(os.path.join(place, name) for place in logs for name in fileio.listdir(place)):
        if not path.endswith(_NOTES):
            continue
        with fileio.open(path) as notes:
            for line in notes.read().splitlines():
                # A killed task may have cut the last line.
                with contextlib.suppress(ValueError):
                    name, digest = json.loads(line)
                    # What is written meanwhile is no input; of several versions the first one counts.
                    found[name] = digest and found.get(name, digest)
    return {name: digest for name, digest in found.items() if digest}


def hashes(paths: Iterable[str]) -> dict[str, str]:
    """Returns the hashes of declared files, and of all files in declared folders, by name."""
    found: dict[str, str] = {}
    for path in paths:
        parts = [os.path.join(top, name) for top, _, names in fileio.walk(path) for name in names]
        for part in sorted(parts) or [path]:
            name = os.path.relpath(part, os.path.dirname(path))
            try:
                with fileio.open(part, "rb") as file:
                    # Two folders may have files of one name.
                    found[part if name in found else name] = opened.hash_open(file)
            except Exception as error:  # stores raise any type
                what, todo = f"{part} cannot be read: {one_line(str(error))}", "check its permissions, or `files`"
                raise DeclarationError(what, expected="a file that your code reads", todo=todo) from error
    return found


def keep(artifact: types.Artifact, files: Mapping[str, str]) -> None:
    """Records the files in an output, except those that are gone by now."""
    if kept := {path: digest for path, digest in files.items() if os.path.isfile(path)}:
        artifact.set_string_custom_property(_READ_FILES, json.dumps(kept, sort_keys=True))


def changes_of(artifact: types.Artifact) -> list[str]:
    """Returns what has changed since an output was published: see `changes`."""
    return changes(json.loads(artifact.get_string_custom_property(_READ_FILES) or "{}"))


def changes(files: Mapping[str, str]) -> list[str]:
    """Returns the files that differ from their hashes, as `mean.npy changed`."""
    now = {path: opened.hash_file(path) for path in files}
    return [
        f"{os.path.basename(path)} {'changed' if now[path] else 'is gone'}"
        for path in files
        if now[path] != files[path]
    ]
