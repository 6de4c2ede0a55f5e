"""What a conversion imports is no garbage: it looks for that itself, twice each time."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def frozen() -> None:
    """Has Python not look through all of it again."""
    from tfx_estimator.pipeline.convert import conversion  # noqa: F401

    gc.collect()
    gc.freeze()
