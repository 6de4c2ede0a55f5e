"""Formats the Evaluator's metrics and a Tuner's trials for display; imports TensorFlow only for charts."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

from tfx_estimator.data.features import LABEL
from tfx_estimator.pipeline.config.put_values import TRIALS_FILE, short_names, show_value, show_values

if TYPE_CHECKING:
    from tfx_estimator.pipeline.report.training import Chart

# Separates the names, and the values, of crossed features.
CROSSED = " x "
# TFMA's names.
BUILT_IN = ACCURACY, LOSS, COUNT = "sparse_categorical_accuracy", "sparse_categorical_crossentropy", "example_count"
PREFIX, DIFF = "sparse_categorical_", "_diff"
SKILL = "skill"
# What is shown first of a table's model, which has a skill.
_FIRST = {
    "auc": "AUC",
    "binary_crossentropy": "log loss",
    "root_mean_squared_error": "RMSE",
    "mean_absolute_error": "MAE",
    SKILL: SKILL,
}
# Largest size of a table of slices.
_MOST_ROWS, _MOST_COLUMNS = 200, 8
_COMPLETED = "completed"
_MOST_CHARTS = 9


@dataclass(frozen=True)
class SliceTable:
    """Metrics of the slices of one feature, or of crossed features."""

    feature: str
    columns: list[str]
    rows: list[tuple[str, list[str]]]  # value of the feature, and the metrics
    left_out: tuple[int, int]  # numbers of rows and columns that are not in the table


def show_metric(value: Optional[float]) -> str:
    """Formats a metric: counts as whole numbers, others with four decimals."""
    if value is None:
        return "nan"
    value = float(value)
    return f"{value:,.0f}" if value.is_integer() and abs(value) > 1 else f"{value:.4f}"


def metric_name(metric: str, label_names: Sequence[str]) -> str:
    """Returns a metric's display name: `precision of three` for `classId:3/precision`."""
    part, _, name = metric.rpartition("/")
    kind, _, number = part.partition(":")
    if not number.isdecimal():
        return metric
    label = int(number)
    of = {"classId": f"of {label_names[label] if label < len(label_names) else label}", "topK": f"at top {number}"}
    return f"{name} {of[kind]}" if kind in of else metric


def slice_name(feature: str, value: str, label_names: Sequence[str]) -> str:
    """Returns the display name of a slice's value, also of crossed features; a label is its class."""
    parts = list(zip(feature.split(CROSSED), value.split(CROSSED)))
    if len(parts) != len(value.split(CROSSED)):
        return value
    return CROSSED.join(label_names[int(part)] if name == LABEL and label_names else part for name, part in parts)


def slice_order(value: str) -> list[tuple[bool, int, str]]:
    """Returns the sort key of a slice's value: numbers first, as numbers."""
    return [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in value.split(CROSSED)]


def first_metrics(metrics: Mapping[str, Any]) -> dict[str, str]:
    """Returns TFMA's and the display name of the metrics that stand for accuracy and loss; empty for images."""
    return {name: shown for name, shown in _FIRST.items() if name in metrics} if SKILL in metrics else {}


def format_metrics(metrics: Mapping[str, Any], label_names: Sequence[str]) -> list[tuple[str, str, str]]:
    """Returns name, value and difference from the baseline of each metric that is not built in."""
    return [
        (
            metric_name(name, label_names),
            show_metric(value),
            show_metric(metrics[f"{name}{DIFF}"]) if f"{name}{DIFF}" in metrics else "",
        )
        for name, value in metrics.items()
        if name not in BUILT_IN and not _is_diff(name, metrics)
    ]


def compare_metrics(summary: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Returns each metric's name and value; with a baseline its value there, and the change."""
    metrics, names = summary.get("metrics") or {}, summary.get("label_names") or ()
    rows = []
    for name, value in metrics.items():
        if name != COUNT and not _is_diff(name, metrics):
            change = metrics.get(f"{name}{DIFF}")
            if change is None or value is None:
                of_baseline = ("nan", "nan") if f"{name}{DIFF}" in metrics else ("", "")
            else:
                of_baseline = (show_metric(value - change), f"{change:+.4f}")
            rows.append((metric_name(name, names).removeprefix(PREFIX), show_metric(value), *of_baseline))
    return rows


def slice_tables(summary: Mapping[str, Any]) -> list[SliceTable]:
    """Returns a table for each feature of the slices."""
    names = summary.get("label_names") or ()
    tables = []
    for feature, slices in (summary.get("slice_metrics") or {}).items():
        found = dict.fromkeys(name for metrics in slices.values() for name in metrics if not _is_diff(name, metrics))
        columns = sorted(found, key=lambda name: (name != COUNT, not name.startswith(PREFIX), "/" in name))
        order = sorted(slices, key=slice_order)
        shown = columns[:_MOST_COLUMNS]
        rows = [
            (slice_name(feature, value, names), [show_metric(slices[value].get(name)) for name in shown])
            for value in order[:_MOST_ROWS]
        ]
        left_out = (len(order) - len(rows), len(columns) - len(shown))
        tables.append(
            SliceTable(feature, [metric_name(name, names).removeprefix(PREFIX) for name in shown], rows, left_out)
        )
    return tables


def _is_diff(name: str, metrics: Mapping[str, Any]) -> bool:
    return name.endswith(DIFF) and name.removesuffix(DIFF) in metrics


def read_tuning(uri: str) -> Optional[dict[str, Any]]:
    """Reads `trials.json` of the artifact `tuner_results`; None if it was deleted."""
    from tfx.dsl.io import fileio

    path = os.path.join(uri, TRIALS_FILE)
    if not fileio.exists(path):
        return None
    with fileio.open(path) as file:
        return json.loads(file.read())


def format_best_trial(found: Mapping[str, Any]) -> str:
    """Returns one line with the best trial's values and score."""
    trials = found["trials"]
    best = next(each for each in trials if each["number"] == found["best"])
    failed = sum(each["status"] != _COMPLETED for each in trials)
    more = f", {failed} of which failed" if failed else ""
    metric = found["objective"]["metric"]
    return f"{show_values(best['values'])}: {metric} {best['score']:.4f}, trial {best['number']} of {len(trials)}{more}"


@dataclass(frozen=True)
class Tuning:
    """Table and charts of the trials."""

    metric: str
    columns: list[str]  # names of the values
    rows: list[tuple[int, bool, list[str], str]]  # number, whether it is the best, cells, note
    charts: list[Chart]  # the objective over the trials, and over each numeric value


def chart_tuning(found: Mapping[str, Any]) -> Tuning:
    """Makes the table and the charts."""
    from tfx_estimator.pipeline.report.page import show_number, show_seconds
    from tfx_estimator.pipeline.report.plots import draw_trials
    from tfx_estimator.pipeline.report.training import Chart

    metric, trials = found["objective"]["metric"], found["trials"]
    names = short_names(list(found["ranges"]))
    rows = []
    for each in trials:
        cells = [show_value(each["values"].get(name, "—")) for name in names]
        cells += [show_number(each["score"]), show_number(each["steps"]), show_seconds(each["seconds"])]
        note = each["reason"].splitlines()[0] if each["reason"] else ""
        note = note or (f"continues trial {each['parent']}" if each["parent"] else "")
        rows.append((each["number"], each["number"] == found["best"], cells, note))
    scored = [each for each in trials if each["score"] is not None]
    best = next(each for each in trials if each["number"] == found["best"])
    scores = [each["score"] for each in scored]
    over_time = draw_trials([each["number"] for each in scored], scores, "trial", best=found["objective"]["mode"])
    charts = [Chart(f"{metric} of each trial", over_time, f"best: {show_number(best['score'])}")]
    for name, short in names.items():
        values = [each["values"].get(name) for each in scored]
        if (
            len(charts) <= _MOST_CHARTS
            and all(type(value) in (int, float) for value in values)
            and len(set(values)) > 1
        ):
            log = "log" in found["ranges"][name]
            text = f"best at {show_value(best['values'][name])}"
            charts.append(Chart(f"{metric} by {short}", draw_trials(values, scores, short, log=log), text))
    return Tuning(metric, list(names.values()), rows, charts)
