"""Turns what TFX, Beam and TensorFlow raise into an error of this project."""

from __future__ import annotations

import os

from tfx_estimator.pipeline.errors import PipelineError, TfxEstimatorError, UserCodeError
from tfx_estimator.pipeline.run.exhausted import exhausted
from tfx_estimator.pipeline.text import printable
from tfx_estimator.pipeline.user_source.frames import causes, user_lines, without_stacks

_LONGEST = 600


def explain(error: BaseException, component: str, log: str) -> TfxEstimatorError:
    """Finds the project's own error behind another, or the user's line behind it, or says what it is.

    Args:
        error: What was raised.
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
