"""Fixtures of the tests of experiments."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves stdout as it is, and discards terminal output."""
    from tfx_estimator.pipeline.experiments import session

    @contextlib.contextmanager
    def terminal(log: str, _: int) -> Iterator[io.StringIO]:
        Path(log).touch()
        yield io.StringIO()

    monkeypatch.setattr(session, "quiet", terminal)
