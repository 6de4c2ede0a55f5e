"""Expects an error of this project, part by part."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tfx_estimator.pipeline.base.errors import TfxEstimatorError


@contextlib.contextmanager
def refused(
    kind: type[TfxEstimatorError], *what: str, expected: str = "", todo: str = ""
) -> Iterator[pytest.ExceptionInfo[TfxEstimatorError]]:
    """Expects an error with these words in each of its parts."""
    with pytest.raises(kind) as caught:
        yield caught
    for part, words in {"what": what, "expected": [expected], "todo": [todo]}.items():
        for each in words:
            assert each in getattr(caught.value, part)
