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
# Another one: a file that has the text of the output's only file.
_COPY_OF = "copy_of"
_NOTES = ".read.jsonl"


def folders_of(*artifacts: Artifacts) -> list[str]:
    """Returns the folders of an execution's artifacts, whose files need no notes."""
    return [artifact.uri for each in artifacts for channel in each.values() for artifact in channel]


def of_training(*folders: str, task: str = "") -> dict[str, str]:
    """Returns the hashes of the files that all tasks of trainings, or one, have read and that are here, by path."""
    found: dict[str, str] = {}
    logs = [place for folder in folders if fileio.exists(place := os.path.join(folder, "logs"))]
    for path in sorted(os.path.join(place, name) for place in logs for name in fileio.listdir(place)):
        if not os.path.basename(path).startswith(task and f"{task}.") or not path.endswith(_NOTES):
            continue
        with fileio.open(path) as notes:
            for line in notes.read().splitlines():
                # A killed task may have cut the last line.
                with contextlib.suppress(ValueError):
                    name, digest = json.loads(line)
                    # What is written meanwhile is no input; of several versions the first one counts.
                    found[name] = digest and found.get(name, digest)
    # What is gone was temporary, maybe on a machine that is gone; the tasks of other machines have files of their own.
    return {name: digest for name, digest in found.items() if digest and os.path.isfile(name)}


def hashes(paths: Iterable[str]) -> dict[str, str]:
    """Returns the hashes of declared files, and of all files in declared folders, by name: see `fingerprint_files`."""
    from etils import epath

    from tfx_estimator.data.sources.files import fingerprint_files

    found: dict[str, str] = {}
    for path in paths:
        names = [os.path.relpath(os.path.join(top, one), path) for top, _, each in fileio.walk(path) for one in each]
        try:
            digest = fingerprint_files([epath.Path(path, name) for name in names or [""]], {"files": sorted(names)})
        except Exception as error:  # stores raise any type
            what, todo = f"{path} cannot be read: {one_line(str(error))}", "check its permissions, or `files`"
            raise DeclarationError(what, expected="a file that your code reads", todo=todo) from error
        name = os.path.basename(path.rstrip("/"))
        # Two may have one name.
        found[path if name in found else name] = digest
    return found


def keep(artifact: types.Artifact, files: Mapping[str, str]) -> None:
    """Records the files in an output, except those that are gone by now."""
    if kept := {path: digest for path, digest in files.items() if os.path.isfile(path)}:
        artifact.set_string_custom_property(_READ_FILES, json.dumps(kept, sort_keys=True))


def keep_copy(artifact: types.Artifact, path: str) -> None:
    """Records the file that the output's only file is a copy of, or will be copied to; it moves with its pipeline."""
    artifact.set_string_custom_property(_COPY_OF, path)


def copy_of(artifact: types.Artifact) -> str:
    """Returns the path that `keep_copy` recorded; empty without one."""
    return str(artifact.get_string_custom_property(_COPY_OF))


def changes_of(artifact: types.Artifact) -> list[str]:
    """Returns what has changed since an output was published: see `changes`."""
    found = changes(json.loads(artifact.get_string_custom_property(_READ_FILES) or "{}"))
    if path := copy_of(artifact):
        texts = []
        for each in (path, *fileio.glob(os.path.join(artifact.uri, "*"))) if fileio.exists(path) else ():
            with fileio.open(each, "rb") as file:
                texts.append(file.read())
        if len(texts) != 2 or texts[0] != texts[1]:
            found.append(f"{os.path.basename(path)} {'changed' if texts else 'is gone'}")
    return found


def changes(files: Mapping[str, str]) -> list[str]:
    """Returns the files that differ from their hashes, as `mean.npy changed`."""
    found = {path: now for path, digest in files.items() if (now := opened.hash_file(path, digest)) != digest}
    return [f"{os.path.basename(path)} {'changed' if now else 'is gone'}" for path, now in found.items()]
