"""What cannot be written is told by its name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tfx_estimator.pipeline.errors import TfxEstimatorError
from tfx_estimator.pipeline.text import one_line


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
