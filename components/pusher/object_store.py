"""Pushes to an address of object storage, by the file systems that TFX knows.

There a folder is no more than a prefix of names: nothing can be renamed in one step, or locked. So the model is copied
into a draft first, and a version is made of that draft: file by file, and last the file without which nothing loads.
What is promised: a version that has its `saved_model.pb` is whole; an error removes what it has begun; a push that was
killed is found by its draft, which says what it was about to make, and the next push removes both: at once where it
runs on the same machine, else after a day. Numbers differ and grow as far as the store lists what was just written, as
those of Google, Amazon and HDFS do.
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
# In a draft: what is pushed, and, as a file of this name and the number, the version that it becomes.
_MODEL, _CLAIM = "model", "version-"
_TRIES = 30
GONE = (FileNotFoundError, fileio.NotFoundError, tf.errors.NotFoundError)


class StoredTree:
    """A folder that TFX's file systems know."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def sizes(self) -> dict[str, int]:
        """Returns the bytes of each file, by its path in the folder."""
        return {os.path.relpath(path, self.folder): size_of(fileio.stat(path)) for path in self._paths(files=True)}

    def folders(self) -> list[str]:
        """Returns the folders in it, those above before those below."""
        return [os.path.relpath(path, self.folder) for path in self._paths(files=False)]

    def open(self, name: str) -> IO[bytes]:
        """Opens a file for reading."""
        return fileio.open(os.path.join(self.folder, name), "rb")

    def written(self) -> float:
        """Returns `time.time()` of the last writing; 0 if there are no files."""
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
        The version: a new one, or the newest if it is that model already. Where something fails, nothing that loads
        is left.
    """
    fileio.makedirs(base)
    for name in filter(versions.is_draft, _list(base)):
        _remove_if_over(base, name)
    newest = versions.newest(_list(base))
    if newest and same(model, StoredTree(os.path.join(base, newest))):
        logger.info(f"the model is version {newest} already")
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
            f"{target} does not hold what was copied there from {model.folder}",
            expected="a store that lists what was written",
            todo="run it again",
        )


def _claim(base: str, draft: str) -> str:
    """Finds a number that nobody else has: two that claim the same see each other, and both try again."""
    for _ in range(_TRIES):
        number = versions.after(versions.newest([*_list(base), *_claimed(base)]))
        claim = os.path.join(draft, f"{_CLAIM}{number}")
        with fileio.open(claim, "wb") as file:
            file.write(b"\n")
        # Claims first: one that goes meanwhile has become a version.
        others = [name for name in (*_claimed(base, draft), *_list(base)) if name.isdigit()]
        if all(int(other) < number for other in others):
            return str(number)
        fileio.remove(claim)
        time.sleep(random.uniform(0.0, 0.5))
    raise PipelineError(
        f"{_TRIES} times another push took the version's number in {base}",
        expected="a number of its own",
        todo="run it again when fewer pushes go on",
    )


def _claimed(base: str, but: str = "") -> list[str]:
    """Returns the versions that pushes are about to make."""
    drafts = [os.path.join(base, name) for name in _list(base) if versions.is_draft(name)]
    return [
        name.removeprefix(_CLAIM)
        for draft in drafts
        if draft != but
        for name in _list(draft)
        if name.startswith(_CLAIM)
    ]


def _remove_if_over(base: str, name: str) -> None:
    """Removes the draft of a push that has died, and the version that it has begun."""
    draft = StoredTree(os.path.join(base, name))
    if not versions.is_over(name, draft.written()):
        return
    logger.info(f"removing what a push left that did not end: {draft.folder}")
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
    except Exception as error:  # which is the store's, and must not hide why it is removed
        logger.warning(f"{folder} cannot be removed: {error}")


def _list(folder: str) -> list[str]:
    try:
        return [name.rstrip("/") for name in fileio.listdir(folder)]
    except OSError:
        return []  # another push has removed it


def size_of(stat: Any) -> int:
    """TensorFlow's file systems and Python's own have other words for it."""
    return stat.length if hasattr(stat, "length") else stat.st_size


def _mtime(stat: Any) -> float:
    return stat.mtime_nsec / 1e9 if hasattr(stat, "mtime_nsec") else stat.st_mtime
