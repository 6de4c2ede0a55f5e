"""Golden files, whose changes show in reviews. `UPDATE_GOLDEN=1 pytest tests/golden` rewrites them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

_FOLDER = Path(__file__).resolve().parent


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compares a text with the golden file of that name, or writes it if UPDATE_GOLDEN is set."""

    def compare(name: str, text: str) -> None:
        file = _FOLDER / name
        if os.environ.get("UPDATE_GOLDEN"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert file.exists(), f"no golden file {name}: run UPDATE_GOLDEN=1 pytest tests/golden, and read the diff"
        assert text == file.read_text(encoding="utf-8"), (
            "wanted: UPDATE_GOLDEN=1 pytest tests/golden, and read the diff"
        )

    return compare
