"""What a YAML declaration calls a thing, in the words of a pipeline that is written in Python."""

from __future__ import annotations

import re

from tfx_estimator.pipeline.errors import TfxEstimatorError

_IN_PYTHON = (
    (r"\btrainer\.(start_timeout|stall_timeout)\b", r"Trainer(settings=Settings(\1=…))"),
    (r"\btrainer\.distribution\.(train|eval)\.(\w+)", r"Trainer(distribution={'\1': {'\2': …}})"),
    (r"\btrainer\.distribution\.(\w+)", r"Trainer(distribution={'\1': …})"),
    (r"\btrainer\.distribution\b", "Trainer(distribution=…)"),
)


def reword(error: TfxEstimatorError) -> None:
    """Tells a caller of `Trainer(…)` which of its arguments an error is about.

    Args:
        error: Written for a declaration; its texts are changed.
    """
    for pattern, words in _IN_PYTHON:
        error.what, error.expected, error.todo = (
            re.sub(pattern, words, text) for text in (error.what, error.expected, error.todo)
        )
