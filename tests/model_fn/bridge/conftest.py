"""A process with Keras 3 for conversions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def process_of_keras3() -> Iterator[Any]:
    from tests.model_fn.bridge.keras3 import shared

    yield shared()
    shared().close()


@pytest.fixture
def keras3(process_of_keras3: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs Keras 3 conversions in one shared process instead of new ones."""
    from tfx_estimator.model_fn.bridge import fresh

    def start(scratch: str, command: Sequence[str], given: Sequence[str]) -> Any:
        result = Path(scratch, fresh.RESULT)
        program = command[-1].rpartition("; from ")[2]
        process_of_keras3.do("convert", f"from {program}", *(f"{scratch}/{name}" for name in given), str(result))
        return json.loads(result.read_text())

    monkeypatch.setattr(fresh, "start", start)
    return process_of_keras3
