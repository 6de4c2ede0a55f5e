"""Turns what TFX, Beam and TensorFlow raise into an error of this project."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path
from typing import Optional

from tfx_estimator.pipeline.errors import PipelineError, TfxEstimatorError, UserCodeError
from tfx_estimator.pipeline.user_source.modules import PROJECT, package_parent

_LONGEST = 600
_PACKAGE = str(package_parent() / PROJECT)


def explain(error: BaseException, component: str, log: str) -> TfxEstimatorError:
    """Finds the project's own error behind another, or the user's line behind it, or says what it is.

    Args:
        error: What was raised.
        component: The component that ran; empty before the first.
        log: Where the whole of it stands.

    Returns:
        The error to show.
    """
    chain = _chain(error)
    for cause in chain:
        if isinstance(cause, TfxEstimatorError):
            return cause
    where = f"component {component}" if component else "building the pipeline"
    told = f"{type(error).__name__}: {_shorten(str(error))}"
    if lines := [line for cause in reversed(chain) for line in _user_lines(cause)]:
        return UserCodeError(
            f"{where} failed in your code: {told}\n{''.join(lines[-3:]).rstrip()}",
            todo=f"mend the code above, or see {log}",
        )
    return PipelineError(
        f"{where} failed: {told}", expected="a component that ends without an error", todo=f"see {log}"
    )


def _chain(error: BaseException) -> list[BaseException]:
    """The error and what caused it, latest first."""
    chain: list[BaseException] = []
    cause: Optional[BaseException] = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    return chain


def _user_lines(error: BaseException) -> list[str]:
    """Lines of the traceback that are neither a library's nor this project's."""
    library = sysconfig.get_paths()["stdlib"]
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "site-packages" not in frame.filename
        and not frame.filename.startswith((library, "<", _PACKAGE))
        and Path(frame.filename).exists()
        and "__autograph_generated" not in frame.filename
    ]
    return traceback.format_list(frames)


def _shorten(text: str) -> str:
    """What a terminal can show of it."""
    shown = "".join(char if char.isprintable() or char == "\n" else "?" for char in text)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]} … (shortened; the log has all)"
