"""Turns exceptions of TFX, Beam and TensorFlow into errors of this project."""

from __future__ import annotations

import os

from tfx_estimator.pipeline.base.errors import PipelineError, TfxEstimatorError, UserCodeError
from tfx_estimator.pipeline.base.files import full_disk
from tfx_estimator.pipeline.base.text import one_line, printable
from tfx_estimator.pipeline.user_source.frames import causes, reason, user_lines

_LONGEST = 600


def explain(error: BaseException, component: str, log: str) -> TfxEstimatorError:
    """Returns the project's error among the causes, or a UserCodeError with the user's lines, or a PipelineError."""
    for cause in causes(error):
        if isinstance(cause, TfxEstimatorError):
            return cause
    where = f"component {component}" if component else "building the pipeline"
    if place := full_disk("\n".join(map(str, causes(error))), os.path.dirname(log)):
        return PipelineError(
            f"{where} failed: the disk of {one_line(place)} is full",
            expected="room, and inodes, for what the pipeline makes",
            todo="make room there (see `df`, and `df -i`), or name another --workdir; then run it again: what was done "
            "before comes from the cache",
        )
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
