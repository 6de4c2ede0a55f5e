"""The table of trials, as lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from tfx_estimator.components.tuner.trials import FAILED, Result
from tfx_estimator.pipeline.config.put_values import short_names, show_value
from tfx_estimator.pipeline.config.tune import TuneSection


def lines(results: Sequence[Result], section: TuneSection, best: Result) -> list[str]:
    """Lays out the table.

    Args:
        results: Of the trials.
        section: What was tuned.
        best: Of them.

    Returns:
        A head, and a line for each trial.
    """
    names = short_names(list(section.ranges))
    rows = [["trial", *names.values(), section.objective.metric, "steps", "seconds", ""]]
    rows += [
        [
            str(each.number),
            *(show_value(each.values.get(name, "")) for name in names),
            "-" if each.score is None else f"{each.score:.4f}",
            "-" if each.steps is None else f"{each.steps:,}",
            f"{each.seconds:.1f}",
            _remark(each, best),
        ]
        for each in results
    ]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  " + "  ".join(cell.rjust(width) for cell, width in zip(row[:-1], widths)) + f"  {row[-1]}".rstrip()
        for row in rows
    ]


def _remark(each: Result, best: Result) -> str:
    if each.status == FAILED:
        return f"failed: {each.reason.splitlines()[0]}"
    remarks = [*(["best"] if each is best else []), *([f"goes on from {each.parent}"] if each.parent else [])]
    return ", ".join(remarks)
