"""The results as a person sees them."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tfx_estimator.pipeline.run.summary import Summary, Warned
from tfx_estimator.pipeline.run.table import _by_slice, print_table

pytestmark = pytest.mark.unit


def shown(summary: Summary) -> str:
    file = io.StringIO()
    print_table(Console(file=file, width=300, highlight=False), summary, "logs", asynchronous=False)
    return file.getvalue()


def test_labels_are_named_and_in_order():
    values = {"10": (0.5, 1), "9": (1.0, 2), "0": (0.25, 3)}
    names = tuple(f"class{index}" for index in range(11))
    assert _by_slice("label", values, names) == "class0 0.250, class9 1.000, class10 0.500"
    assert _by_slice("size", {"small": (0.5, 1), "2": (0.75, 1)}, ()) == "2 0.750, small 0.500"


def test_warnings_are_told_again_but_not_those_that_restarts_tell():
    restart = "worker-1 was killed at step 20; all tasks were started again"
    text = shown(
        Summary(
            "own",
            "own.yaml",
            warnings=[Warned("Trainer", "differs by 3.0 %"), Warned("Trainer", restart)],
            restarts=[f"{restart}, 3 steps lost, 7 s"],
        )
    )
    assert "warnings      Trainer: differs by 3.0 %\n" in text
    assert text.count(restart) == 1
