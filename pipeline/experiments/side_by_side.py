"""Trainings side by side: table rows for terminal and page, and the page of several runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Optional, TypeVar

from rich.console import Console
from rich.table import Table

from tfx_estimator.pipeline.base.files import write_whole
from tfx_estimator.pipeline.config.yaml_text import inline
from tfx_estimator.pipeline.report.metrics import format_metrics
from tfx_estimator.pipeline.report.page import Missing, attempt, render, show_number, show_percent, show_seconds
from tfx_estimator.pipeline.report.plots import COLOURS
from tfx_estimator.pipeline.report.report import read_run_outputs
from tfx_estimator.pipeline.report.source import Run
from tfx_estimator.pipeline.report.training import (
    Chart,
    Series,
    Training,
    chart_metric,
    drawn_metrics,
    find_training,
    read_training,
)

ABSENT = "—"
MEGABYTE = 1 << 20

_T = TypeVar("_T")
# A title, and a cell for each training.
Row = tuple[str, list[str]]


def fact_rows(facts: Mapping[str, Callable[[_T], Optional[str]]], compared: Iterable[_T]) -> list[Row]:
    """Returns a row for each fact that any of the compared has."""
    each_one = list(compared)
    rows = {title: [show(one) for one in each_one] for title, show in facts.items()}
    return [(title, [cell or ABSENT for cell in cells]) for title, cells in rows.items() if any(cells)]


def show_fact(facts: Mapping[str, Any], name: str, show: Callable[[Any], str]) -> Optional[str]:
    """Formats a fact; None without it."""
    value = facts.get(name)
    return None if value is None else show(value)


def differences(all_values: Sequence[Mapping[str, str]]) -> list[Row]:
    """Returns the keys whose values differ, with all values."""
    keys = dict.fromkeys(key for values in all_values for key in values)
    rows = [(key, [values.get(key, ABSENT) for values in all_values]) for key in keys]
    return [(key, cells) for key, cells in rows if len(set(cells)) > 1]


def print_rows(console: Console, titles: Sequence[str], rows: Iterable[Row]) -> None:
    """Prints a table: the first column is text, the others are numbers."""
    table = Table(box=None, pad_edge=False)
    for index, title in enumerate(titles):
        table.add_column(title, justify="right" if index else "left")
    for title, cells in rows:
        table.add_row(title, *cells)
    console.print()
    console.print(table)


def write_comparison(runs: Sequence[Run], path: str) -> None:
    """Writes the page of several runs."""
    names = name_runs(runs)
    trainings = {name: attempt(read_training, attempt(_training, run)) for name, run in zip(names, runs)}
    page = render_side_by_side(
        "comparison.html.j2",
        trainings,
        [run.values for run in runs],
        logs=[(name, run.logs) for name, run in zip(names, runs)],
        results=results(runs),
        versions=differences([run.summary.get("versions", {}) for run in runs]),
    )
    write_whole(path, page, named=True)


def render_side_by_side(
    template: str, trainings: Mapping[str, Training | Missing], declared: Sequence[Mapping[str, Any]], **more: Any
) -> str:
    """Renders the page of several trainings, with the curves of each by name, and declared values by dotted path."""
    return render(
        template,
        names=list(trainings),
        charts=chart_runs(trainings),
        colours=COLOURS,
        without=[(name, each.why) for name, each in trainings.items() if isinstance(each, Missing)],
        settings=differences([{key: inline(value) for key, value in values.items()} for values in declared]),
        **more,
    )


def name_runs(runs: Sequence[Run]) -> list[str]:
    """Returns a short unique name for each run."""
    several = len({run.name for run in runs}) > 1
    names = [f"{run.name} {run.time}" if several else run.time for run in runs]
    return [f"{name} ({index})" if names.count(name) > 1 else name for index, name in enumerate(names, 1)]


def results(runs: Sequence[Run]) -> list[Row]:
    """Returns rows with the results of each run."""
    summaries = [run.summary for run in runs]

    def metrics(summary: Mapping[str, Any]) -> dict[str, str]:
        formatted = format_metrics(summary.get("metrics") or {}, summary.get("label_names") or ())
        return {name: value for name, value, _ in formatted}

    def metric(title: str) -> Callable[[Mapping[str, Any]], Optional[str]]:
        return lambda summary: metrics(summary).get(title)

    def of_training(name: str, show: Callable[[Any], str]) -> Callable[[Mapping[str, Any]], Optional[str]]:
        return lambda summary: show_fact(summary.get("training", {}), name, show)

    facts: dict[str, Callable[[Mapping[str, Any]], Optional[str]]] = {
        "state": lambda summary: summary.get("state"),
        "data": lambda summary: summary.get("dataset"),
        "accuracy": lambda summary: show_fact(summary, "accuracy", lambda value: show_percent(value, 2)),
        "mean loss": lambda summary: show_fact(summary, "loss", show_number),
        **{name: metric(name) for summary in summaries for name in metrics(summary)},
        "blessed": lambda summary: show_fact(summary, "blessed", lambda value: "yes" if value else "no"),
        "steps": of_training("last_step", show_number),
        "training": of_training("train_seconds", show_seconds),
        "examples/s": of_training("examples_per_second", show_number),
        "restarts": of_training("restarts", show_number),
        "whole run": lambda summary: show_fact(summary, "seconds", show_seconds),
        "warnings": lambda summary: show_fact(summary, "warnings", lambda found: str(len(found))),
        "error": lambda summary: (summary.get("error") or {}).get("what"),
    }
    return fact_rows(facts, summaries)


def chart_runs(trainings: Mapping[str, Training | Missing]) -> list[Chart]:
    """Returns a chart for each metric, with the curves of all trainings."""
    metrics: dict[str, dict[str, Series]] = {}
    for name, training in trainings.items():
        if not isinstance(training, Missing):
            for metric, curves in training.curves.items():
                metrics.setdefault(metric, {}).update({f"{name}: {who}": each for who, each in curves.items()})
    return [chart_metric(metric, metrics[metric], list(trainings)) for metric in drawn_metrics(metrics)]


def _training(run: Run) -> str:
    return find_training(run, attempt(read_run_outputs, run))
