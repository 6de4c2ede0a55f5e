"""A valid declaration, and fixtures that return the messages of invalid ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import load

GOOD = """\
name: mine
data:
  dataset: mnist
  splits: {train: "train[:90%]", eval: test}
trainer:
  model: mnist_cnn
  train_steps: 500
"""


@pytest.fixture
def good() -> str:
    return GOOD


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Writes a declaration into a temporary folder, the current one."""
    monkeypatch.chdir(tmp_path)

    def write_file(text: str, name: str = "mine.yaml") -> Path:
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        return file

    return write_file


@pytest.fixture
def refuse(write: Callable[[str], Path]) -> Callable[..., str]:
    def message(text: str, overrides: Sequence[str] = ()) -> str:
        write(text)
        with pytest.raises(DeclarationError) as caught:
            load("mine.yaml", overrides)
        assert caught.value.exit_code == 2
        return str(caught.value)

    return message


@pytest.fixture
def problems(refuse: Callable[..., str]) -> Callable[..., list[str]]:
    """Loads a declaration that must be refused, and returns its problems in order, without their indentation."""

    def split(text: str, overrides: Sequence[str] = ()) -> list[str]:
        head, *found, then = refuse(text, overrides).split("\n\n")
        assert re.fullmatch(rf"the declaration mine.yaml has {len(found)} problems?", head)
        assert then == "  then:     tfx-estimator validate mine.yaml"
        return ["\n".join(line.strip() for line in problem.splitlines()) for problem in found]

    return split
