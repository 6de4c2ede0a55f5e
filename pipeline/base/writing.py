"""What cannot be written is told by its name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tfx_estimator.pipeline.base.errors import TfxEstimatorError
from tfx_estimator.pipeline.base.text import one_line


@contextlib.contextmanager
def writing(name: str) -> Iterator[None]:
    """Says which file it was that could not be written.

    Raises:
        TfxEstimatorError: It cannot be written.
    """
    try:
        yield
    except OSError as error:
        what = f"{one_line(name)} cannot be written: {error.strerror}"
        raise TfxEstimatorError(what, expected="a folder that you may write to", todo="choose another") from error


@contextlib.contextmanager
def printing(stream: str) -> Iterator[None]:
    """Says which stream it was that could not be written; that nobody reads it is for others to judge.

    Args:
        stream: `stdout` or `stderr`.

    Raises:
        TfxEstimatorError: It cannot be written.
        BrokenPipeError: Nobody reads it.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise TfxEstimatorError(f"{stream} cannot be written: {error.strerror}") from error
