"""Pushes into a local or mounted folder. Standard library only.

A draft is `.push-…/` next to the versions, so that it is on their file system: it holds `lock`, which the pushing
process keeps locked, and `model`, which becomes the version by one rename.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator

from tfx_estimator.components.pusher import versions
from tfx_estimator.components.pusher.versions import LocalTree, Tree, chunks, same
from tfx_estimator.pipeline.base import lock
from tfx_estimator.pipeline.base.files import sync
from tfx_estimator.pipeline.base.log import get_logger

logger = get_logger("pusher")
# Held while drafts are made and removed, and while a version gets its number.
_LOCK = ".push.lock"
# Errors of a rename to an existing version.
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


def push(model: Tree, base: str) -> str:
    """Makes a model the newest version.

    Returns:
        The version: a new one, or the newest if it already is that model. After an error there is no new version.
    """
    os.makedirs(base, exist_ok=True)
    with _draft(base) as draft:
        newest = versions.newest(os.listdir(base))
        if newest and same(model, LocalTree(os.path.join(base, newest))):
            logger.info(f"the model already is version {newest}")
            return newest
        _copy(model, draft)
        return _publish(draft, base, newest)


@contextlib.contextmanager
def _draft(base: str) -> Iterator[str]:
    """Makes a draft, and removes it afterwards; removes those of pushes that have died."""
    folder, fd = os.path.join(base, versions.draft_name()), -1
    try:
        with lock.held(os.path.join(base, _LOCK), "push"):
            for name in os.listdir(base):
                if versions.is_draft(name):
                    _remove_if_dead(os.path.join(base, name))
            os.mkdir(folder)
            fd = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o666)
            lock.try_lock(fd)
        yield os.path.join(folder, "model")
    finally:
        if fd >= 0:
            os.close(fd)  # first: NFS would keep an open file under another name when it is removed
        shutil.rmtree(folder, ignore_errors=True)


def _remove_if_dead(draft: str) -> None:
    try:
        dead = _is_dead(draft)
    except OSError:
        return  # its push has just removed it, or it is another user's
    if dead:
        logger.info(f"removing the draft of a push that has died: {draft}")
        shutil.rmtree(draft, ignore_errors=True)


def _is_dead(draft: str) -> bool:
    written = max(os.path.getmtime(path) for path in (draft, *(top for top, _, _ in os.walk(draft))))
    free = None
    with contextlib.suppress(FileNotFoundError):  # the lock is made a moment after its draft
        fd = os.open(os.path.join(draft, "lock"), os.O_RDWR)
        try:
            free = lock.try_lock(fd)
        finally:
            os.close(fd)
    return versions.is_dead(os.path.basename(draft), written) if free is None else free


def _copy(model: Tree, draft: str) -> None:
    """Copies a model so that it survives a power failure."""
    os.mkdir(draft)
    for name in model.folders():
        os.makedirs(os.path.join(draft, name), exist_ok=True)
    for name in model.sizes():
        with model.open(name) as source, open(os.path.join(draft, name), "xb") as target:
            for piece in chunks(source):
                target.write(piece)
            target.flush()
            os.fsync(target.fileno())
    for top, _, _ in os.walk(draft):
        sync(top)


def _publish(draft: str, base: str, compared: str) -> str:
    """Renames a draft to a version.

    Args:
        compared: The version that is known to differ from the draft.
    """
    with lock.held(os.path.join(base, _LOCK), "push"):
        newest = versions.newest(os.listdir(base))
        if newest != compared and newest and same(LocalTree(draft), LocalTree(os.path.join(base, newest))):
            return newest
        number = versions.after(newest)
        while True:
            try:
                os.rename(draft, os.path.join(base, str(number)))
                break
            except OSError as error:
                if error.errno not in _TAKEN:
                    raise
                number += 1  # taken by a process that does not lock
        sync(base)
    return str(number)
