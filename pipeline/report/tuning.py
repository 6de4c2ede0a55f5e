"""The trials of a tuning: a table, and how the objective went, over the trials and over each value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfx_estimator.pipeline.config.put_values import short_names, show_value
from tfx_estimator.pipeline.report.page import show_number, show_seconds
from tfx_estimator.pipeline.report.plots import draw_trials
from tfx_estimator.pipeline.report.training import Chart

_MOST_CHARTS = 9


@dataclass(frozen=True)
class Tuning:
    """The trials as a page shows them.

    Args:
        metric: The objective.
        columns: Names of the values.
        rows: Of each trial: its number, whether it is the best, its cells, and what is to be said of it.
        charts: The objective over the trials, and over each value that is a number.
    """

    metric: str
    columns: list[str]
    rows: list[tuple[int, bool, list[str], str]]
    charts: list[Chart]


def chart_tuning(found: Mapping[str, Any]) -> Tuning:
    """Lays out the table, and draws the charts.

    Args:
        found: As of `trials.read_tuning`.
    """
    metric, trials = found["objective"]["metric"], found["trials"]
    names = short_names(list(found["ranges"]))
    rows = []
    for each in trials:
        cells = [show_value(each["values"].get(name, "—")) for name in names]
        cells += [show_number(each["score"]), show_number(each["steps"]), show_seconds(each["seconds"])]
        said = each["reason"].splitlines()[0] if each["reason"] else ""
        said = said or (f"goes on from trial {each['parent']}" if each["parent"] else "")
        rows.append((each["number"], each["number"] == found["best"], cells, said))
    scored = [each for each in trials if each["score"] is not None]
    numbers = [each["number"] for each in scored]
    scores = [each["score"] for each in scored]
    better = found["objective"]["mode"]
    charts = [
        Chart(
            f"{metric} of each trial",
            draw_trials(numbers, scores, "trial", best=better),
            f"best: {show_number(max(scores) if better == 'max' else min(scores))}",
        )
    ]
    for name, short in names.items():
        values = [each["values"].get(name) for each in scored]
        if (
            len(charts) <= _MOST_CHARTS
            and all(type(value) in (int, float) for value in values)
            and len(set(values)) > 1
        ):
            log = "log" in found["ranges"][name]
            best = next(each for each in trials if each["number"] == found["best"])
            text = f"best at {show_value(best['values'][name])}"
            charts.append(Chart(f"{metric} by {short}", draw_trials(values, scores, short, log=log), text))
    return Tuning(metric, list(names.values()), rows, charts)
