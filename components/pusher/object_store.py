"""Pushes to an address in object storage, by TFX's file systems.

There a folder is only a prefix of names: nothing can be renamed in one step, or locked. So the model is copied into a
draft first, and from there into the version, file by file, with `saved_model.pb` last. Guarantees: a version with its
`saved_model.pb` is complete; after an error the partial version is removed; a push that was killed leaves its draft,
which names its version, and the next push removes both: at once on the same machine, otherwise after a day. Numbers are
unique and increasing if the store lists files that were just written, as those of Google, Amazon and HDFS do.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from typing import IO, Any

import tensorflow as tf
from tfx.dsl.io import fileio

from tfx_estimator.components.files import comes_last
from tfx_estimator.components.pusher import versions
from tfx_estimator.components.pusher.versions import Tree, same
from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.base.log import get_logger

logger = get_logger("pusher")
# In a draft: the model, and an empty file with this prefix and the number of the version.
_MODEL, _CLAIM = "model", "version-"
_TRIES = 30
GONE = (FileNotFoundError, fileio.NotFoundError, tf.errors.NotFoundError)


class StoredTree:
    """A folder of TFX's file systems."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def sizes(self) -> dict[str, int]:
        """Returns the bytes of each file, by its path in the folder."""
        return {os.path.relpath(path, self.folder): size_of(fileio.stat(path)) for path in self._paths(files=True)}

    def folders(self) -> list[str]:
        """Returns its subfolders, parents first."""
        return [os.path.relpath(path, self.folder) for path in self._paths(files=False)]

    def open(self, name: str) -> IO[bytes]:
        """Opens a file for reading."""
        return fileio.open(os.path.join(self.folder, name), "rb")

    def written(self) -> float:
        """Returns `time.time()` of the last write; 0 without files."""
        last = 0.0
        for path in self._paths(files=True):
            with contextlib.suppress(*GONE):  # another push may be removing them
                last = max(last, _mtime(fileio.stat(path)))
        return last

    def _paths(self, files: bool) -> list[str]:
        if not fileio.exists(self.folder):
            return []
        return [
            os.path.join(top, name.rstrip("/"))
            for top, folders, names in fileio.walk(self.folder)
            for name in (names if files else folders)
        ]


def push(model: Tree, base: str) -> str:
    """Makes a model the newest version.

    Returns:
        The version: a new one, or the newest if it already is that model. After an error nothing loadable is left.
    """
    fileio.makedirs(base)
    for name in filter(versions.is_draft, _list(base)):
        _remove_if_dead(base, name)
    newest = versions.newest(_list(base))
    if newest and same(model, StoredTree(os.path.join(base, newest))):
        logger.info(f"the model already is version {newest}")
        return newest
    draft, target = os.path.join(base, versions.draft_name()), ""
    try:
        whole = os.path.join(draft, _MODEL)
        _copy(model, whole)
        version = _claim(base, draft)
        target = os.path.join(base, version)
        _copy(StoredTree(whole), target)
    except BaseException:
        for folder in filter(None, (target, draft)):
            _remove(folder)
        raise
    _remove(draft)
    return version


def _copy(model: Tree, target: str) -> None:
    for name in ("", *model.folders()):
        fileio.makedirs(os.path.join(target, name))
    sizes = model.sizes()
    for name in sorted(sizes, key=comes_last):
        fileio.copy(os.path.join(model.folder, name), os.path.join(target, name), overwrite=True)
    if StoredTree(target).sizes() != sizes:
        raise PipelineError(
            f"{target} does not hold the files that were copied there from {model.folder}",
            expected="a store that lists the files that were written",
            todo="run it again",
        )


def _claim(base: str, draft: str) -> str:
    """Claims a unique number: two pushes that claim the same one see each other, and both retry."""
    for _ in range(_TRIES):
        number = versions.after(versions.newest([*_list(base), *_claimed(base)]))
        claim = os.path.join(draft, f"{_CLAIM}{number}")
        with fileio.open(claim, "wb") as file:
            file.write(b"\n")
        # Claims first: one that disappears meanwhile has become a version.
        others = [name for name in (*_claimed(base, draft), *_list(base)) if name.isdigit()]
        if all(int(other) < number for other in others):
            return str(number)
        fileio.remove(claim)
        time.sleep(random.uniform(0.0, 0.5))
    raise PipelineError(
        f"{_TRIES} times another push took the version's number in {base}",
        expected="a unique number",
        todo="run it again when fewer pushes are running",
    )


def _claimed(base: str, but: str = "") -> list[str]:
    """Returns the versions that running pushes have claimed."""
    drafts = [os.path.join(base, name) for name in _list(base) if versions.is_draft(name)]
    return [
        name.removeprefix(_CLAIM)
        for draft in drafts
        if draft != but
        for name in _list(draft)
        if name.startswith(_CLAIM)
    ]


def _remove_if_dead(base: str, name: str) -> None:
    """Removes the draft of a push that has died, and its partial version."""
    draft = StoredTree(os.path.join(base, name))
    if not versions.is_dead(name, draft.written()):
        return
    logger.info(f"removing the draft of a push that has died: {draft.folder}")
    whole = StoredTree(os.path.join(draft.folder, _MODEL)).sizes()
    for number in (each.removeprefix(_CLAIM) for each in _list(draft.folder) if each.startswith(_CLAIM)):
        version = StoredTree(os.path.join(base, number))
        if not whole.items() <= version.sizes().items():
            _remove(version.folder)
    _remove(draft.folder)


def _remove(folder: str) -> None:
    try:
        if fileio.exists(folder):
            fileio.rmtree(folder)
    except Exception as error:  # stores raise any type; it must not hide the first error
        logger.warning(f"{folder} cannot be removed: {error}")


def _list(folder: str) -> list[str]:
    try:
        return [name.rstrip("/") for name in fileio.listdir(folder)]
    except OSError:
        return []  # another push has removed it


def size_of(stat: Any) -> int:
    """Returns the size in the result of TensorFlow's or Python's `stat`."""
    return stat.length if hasattr(stat, "length") else stat.st_size


def _mtime(stat: Any) -> float:
    return stat.mtime_nsec / 1e9 if hasattr(stat, "mtime_nsec") else stat.st_mtime
