"""Log folders of runs, written by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DECLARATION = """\
name: {name}                 # own.yaml:1
data:
  dataset: digits            # own.yaml:2
trainer:
  train_steps: {steps}       # --set
  seed: 42                   # default
"""


@pytest.fixture
def leave_run(tmp_path: Path) -> Callable[..., Path]:
    """Writes the log folder of a run, and returns it."""

    def leave(time: str, name: str = "own", steps: int = 5, **summary: Any) -> Path:
        logs = tmp_path / name / "logs" / time
        logs.mkdir(parents=True)
        (logs / "declaration.yaml").write_text(DECLARATION.format(name=name, steps=steps), encoding="utf-8")
        if summary:
            (logs / "summary.json").write_text(json.dumps(summary))
        return logs

    return leave
