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
    """Expects an error that says all of these."""
    with pytest.raises(kind) as caught:
        yield caught
    for said, words in [*((caught.value.what, each) for each in what), (caught.value.expected, expected)]:
        assert words in said
    assert todo in caught.value.todo
