"""Turns what TFX, Beam and TensorFlow raise into an error of this project."""

from __future__ import annotations

import os
import re
import resource
import tempfile
from collections.abc import Iterable
from typing import Optional

from tfx_estimator.pipeline.base.errors import PipelineError, TfxEstimatorError, UserCodeError
from tfx_estimator.pipeline.base.text import one_line, printable
from tfx_estimator.pipeline.user_source.frames import causes, user_lines, without_stacks

_DISK = ("No space left on device", "Disk quota exceeded", "database or disk is full")
# SQLite's, among others of a journal that it cannot make, as there is no inode for it.
_MAY_BE_DISK = "unable to open database file"
# A share of a disk, or of its inodes, below which there is no room.
_NO_ROOM = 0.01
_OPEN_FILES = ("Too many open files",)
_MEMORY = ("MemoryError", "Cannot allocate memory", "std::bad_alloc", "can't start new thread")
# As TensorFlow and as Python name what they could not write.
_UNWRITTEN = re.compile(r"(/[^;:'\"\n]+); No space left|No space left on device: '(/[^'\n]+)'")

_LONGEST = 600


def explain(error: BaseException, component: str, log: str) -> TfxEstimatorError:
    """Finds the project's own error behind another, or the user's line behind it, or says what it is.

    Args:
        component: The component that ran; empty before the first.
        log: Where the whole of it stands.

    Returns:
        The error to show.
    """
    for cause in causes(error):
        if isinstance(cause, TfxEstimatorError):
            return cause
    where = f"component {component}" if component else "building the pipeline"
    if used_up := exhausted(causes(error), where, os.path.dirname(log)):
        return used_up
    ended = next((cause for cause in causes(error) if isinstance(cause, SystemExit)), None)
    told = (
        f"{type(error).__name__}: {_shorten(without_stacks(str(error)))}"
        if ended is None
        else f"it ended the process: {ended!r}"
    )
    if lines := user_lines(error):
        return UserCodeError(
            f"{where} failed in your code: {told}\n{''.join(lines[-3:]).rstrip()}",
            todo=f"mend the code above, or see {log}",
        )
    return PipelineError(
        f"{where} failed: {told}", expected="a component that ends without an error", todo=f"see {log}"
    )


def _shorten(text: str) -> str:
    """What a terminal can show of it."""
    shown = printable(text)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]} … (shortened; the log has all)"


def exhausted(errors: Iterable[BaseException], where: str, folder: str) -> Optional[PipelineError]:
    """Says what was used up.

    Args:
        errors: What was raised, and what caused it.
        where: It was raised, for people.
        folder: Where the run writes, unless the error names a file.

    Returns:
        The error to show; None if it was something else.
    """
    text = "\n".join(f"{type(each).__name__}: {each}" for each in errors)
    found = _UNWRITTEN.search(text)
    places = [os.path.dirname(found[1] or found[2])] if found else [folder, tempfile.gettempdir()]
    place = min((_there(each) for each in places), key=_room)
    room, of_inodes = _room(place)
    if any(each in text for each in _DISK) or (_MAY_BE_DISK in text and room < _NO_ROOM):
        if of_inodes and room < _NO_ROOM:
            what, todo = f"has no inodes left of {os.statvfs(place).f_files:,}", "remove files there"
        else:
            what, todo = "is full", "make room there"
        what, expected = f"the disk of {one_line(place)} {what}", "room for what the pipeline makes"
        todo += ", or name another --workdir"
    elif any(each in text for each in _OPEN_FILES):
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        what, expected, todo = f"no more than {files:,} files may be open", "more of them", "raise `ulimit -n`"
    elif any(each in text for each in _MEMORY):
        what, expected = "the memory is used up", "memory for what the component does"
        todo = "give it more (see `ulimit -v`, and the limit of the container)"
    else:
        return None
    todo += "; then run it again: what was done before comes from the cache"
    return PipelineError(f"{where} failed: {what}", expected=expected, todo=todo)


def _there(folder: str) -> str:
    """The folder, or the one above that is there: what fails removes what it has written."""
    folder = os.path.abspath(folder)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder


def _room(folder: str) -> tuple[float, bool]:
    """The share of blocks that is free, or of inodes where those are scarcer, and whether they are."""
    disk = os.statvfs(folder)
    # Not every file system counts them.
    inodes = disk.f_favail / disk.f_files if disk.f_files else 1.0
    return min((disk.f_bavail / max(disk.f_blocks, 1), False), (inodes, True))
