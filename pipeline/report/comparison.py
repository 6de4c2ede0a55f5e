"""Makes one page of several runs: their results, their curves over each other, and what was declared differently."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfx_estimator.pipeline.base.files import write_whole
from tfx_estimator.pipeline.config.yaml_text import inline
from tfx_estimator.pipeline.report.events import Series, Training, read_training
from tfx_estimator.pipeline.report.metrics import tell_metrics
from tfx_estimator.pipeline.report.missing import Missing, attempt
from tfx_estimator.pipeline.report.page import render, show_number, show_percent, show_seconds
from tfx_estimator.pipeline.report.plots import COLOURS
from tfx_estimator.pipeline.report.report import read_run_outputs
from tfx_estimator.pipeline.report.source import Run
from tfx_estimator.pipeline.report.training import Chart, chart_metric, find_training, in_order

_ABSENT = "—"

Row = tuple[str, list[str]]


def write_comparison(runs: Sequence[Run], path: str) -> None:
    """Writes the page of several runs.

    Raises:
        OSError: It cannot be written.
    """
    names = name_runs(runs)
    trainings = {name: attempt(read_training, attempt(_training, run)) for name, run in zip(names, runs)}
    values = {
        "runs": list(zip(names, runs)),
        "results": results(runs),
        "charts": chart_runs(trainings),
        "colours": COLOURS,
        "without": [(name, each.why) for name, each in trainings.items() if isinstance(each, Missing)],
        "settings": differences([{key: inline(value) for key, value in run.values.items()} for run in runs]),
        "versions": differences([run.summary.get("versions", {}) for run in runs]),
    }
    write_whole(path, render("comparison.html.j2", **values), named=True)


def name_runs(runs: Sequence[Run]) -> list[str]:
    """Returns a short name for each run, no two alike."""
    several = len({run.name for run in runs}) > 1
    names = [f"{run.name} {run.time}" if several else run.time for run in runs]
    return [f"{name} ({index})" if names.count(name) > 1 else name for index, name in enumerate(names, 1)]


def results(runs: Sequence[Run]) -> list[Row]:
    """Returns what each run came to, a fact a row; facts that no run has are left out."""
    summaries = [run.summary for run in runs]
    facts: dict[str, Callable[[Mapping[str, Any]], Any]] = {
        "state": lambda summary: summary.get("state"),
        "data": lambda summary: summary.get("dataset") or None,
        "accuracy": lambda summary: _shown(summary.get("accuracy"), lambda value: show_percent(value, 2)),
        "mean loss": lambda summary: _shown(summary.get("loss"), show_number),
        "blessed": lambda summary: _shown(summary.get("blessed"), lambda value: "yes" if value else "no"),
        "steps": lambda summary: _shown(summary.get("training", {}).get("last_step"), show_number),
        "training": lambda summary: _shown(summary.get("training", {}).get("train_seconds"), show_seconds),
        "examples/s": lambda summary: _shown(summary.get("training", {}).get("examples_per_second"), show_number),
        "restarts": lambda summary: _shown(summary.get("training", {}).get("restarts"), show_number),
        "whole run": lambda summary: _shown(summary.get("seconds"), show_seconds),
        "warnings": lambda summary: str(len(summary["warnings"])) if "warnings" in summary else None,
        "error": lambda summary: (summary.get("error") or {}).get("what"),
    }
    measured = [{name: value for name, value, _ in tell_metrics(summary)} for summary in summaries]
    names = dict.fromkeys(name for each in measured for name in each)
    rows = [(title, [fact(summary) for summary in summaries]) for title, fact in facts.items()]
    rows[4:4] = [(name, [each.get(name) for each in measured]) for name in names]
    return [(title, [_ABSENT if cell is None else cell for cell in cells]) for title, cells in rows if any(cells)]


def differences(all_values: Sequence[Mapping[str, str]]) -> list[Row]:
    """Returns the keys whose values are not the same in all, with each one's value."""
    keys = dict.fromkeys(key for values in all_values for key in values)
    rows = [(key, [values.get(key, _ABSENT) for values in all_values]) for key in keys]
    return [(key, cells) for key, cells in rows if len(set(cells)) > 1]


def chart_runs(trainings: Mapping[str, Training | Missing]) -> list[Chart]:
    """Lays the curves of each metric over each other.

    Args:
        trainings: Of each run, by its name.
    """
    metrics: dict[str, dict[str, Series]] = {}
    for name, training in trainings.items():
        if not isinstance(training, Missing):
            for metric, curves in training.curves.items():
                metrics.setdefault(metric, {}).update({f"{name}: {who}": each for who, each in curves.items()})
    return [chart_metric(metric, metrics[metric], list(trainings)) for metric in in_order(metrics)]


def _training(run: Run) -> str:
    return find_training(run, attempt(read_run_outputs, run))


def _shown(value: Any, show: Callable[[Any], str]) -> str | None:
    return None if value is None else show(value)
