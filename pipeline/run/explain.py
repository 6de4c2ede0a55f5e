"""Turns exceptions of TFX, Beam and TensorFlow into errors of this project."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from typing import Optional

from tfx_estimator.pipeline.base.errors import PipelineError, TfxEstimatorError, UserCodeError
from tfx_estimator.pipeline.base.text import one_line, printable
from tfx_estimator.pipeline.user_source.frames import causes, reason, user_lines

_DISK = ("No space left on device", "Disk quota exceeded", "database or disk is full")
# The path in the messages of TensorFlow and Python.
_UNWRITTEN = re.compile(r"(/[^;:'\"\n]+); No space left|No space left on device: '(/[^'\n]+)'")

_LONGEST = 600


def explain(error: BaseException, component: str, log: str) -> TfxEstimatorError:
    """Returns the project's error among the causes, or a UserCodeError with the user's lines, or a PipelineError."""
    for cause in causes(error):
        if isinstance(cause, TfxEstimatorError):
            return cause
    where = f"component {component}" if component else "building the pipeline"
    if full := _full_disk(causes(error), where, os.path.dirname(log)):
        return full
    ended = next((cause for cause in causes(error) if isinstance(cause, SystemExit)), None)
    kind, text = reason(error)
    message = f"{kind}: {_shorten(text)}" if ended is None else f"it ended the process: {ended!r}"
    if lines := user_lines(error):
        return UserCodeError(
            f"{where} failed in your code: {message}\n{''.join(lines[-3:]).rstrip()}",
            todo=f"fix the code above, or see {log}",
        )
    return PipelineError(
        f"{where} failed: {message}", expected="a component that ends without an error", todo=f"see {log}"
    )


def _shorten(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]} … (shortened; the log has all)"


def _full_disk(errors: Iterable[BaseException], where: str, folder: str) -> Optional[PipelineError]:
    """Returns an error that names the full disk: the failed file's, or the run's; None if no disk is full."""
    text = "\n".join(map(str, errors))
    if not any(each in text for each in _DISK):
        return None
    found = _UNWRITTEN.search(text)
    places = [os.path.dirname(found[1] or found[2])] if found else [folder, tempfile.gettempdir()]
    place = min(map(_existing, places), key=lambda each: shutil.disk_usage(each).free)
    return PipelineError(
        f"{where} failed: the disk of {one_line(place)} is full",
        expected="room, and inodes, for what the pipeline makes",
        todo="make room there (see `df`, and `df -i`), or name another --workdir; then run it again: what was done "
        "before comes from the cache",
    )


def _existing(folder: str) -> str:
    """Returns the folder, or its nearest existing parent: a failed write may have removed its folder."""
    folder = os.path.abspath(folder)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder
