"""Makes the report of a run, or of several side by side."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfx_estimator.pipeline.base.files import write_whole
from tfx_estimator.pipeline.config.put_values import short_names, show_value
from tfx_estimator.pipeline.report.artifacts import Outputs, read_outputs
from tfx_estimator.pipeline.report.events import read_training
from tfx_estimator.pipeline.report.graph import lay_out
from tfx_estimator.pipeline.report.metrics import tell_metrics, tell_slices
from tfx_estimator.pipeline.report.missing import LeftOutError, attempt
from tfx_estimator.pipeline.report.page import render, show_number, show_seconds
from tfx_estimator.pipeline.report.plots import draw_trials
from tfx_estimator.pipeline.report.source import Run
from tfx_estimator.pipeline.report.training import Chart, chart_training, find_training, tell_time
from tfx_estimator.pipeline.report.versions import read_versions

_MOST_CHARTS = 9

FILE = "report.html"
# A line of the resolved declaration, and where its value came from.
_LINE = re.compile(r"(.*?)(  +# .*)?$")


def write_report(run: Run, path: str) -> None:
    """Writes the report of a run: with what there is, and one sentence in place of what there is not.

    Raises:
        OSError: It cannot be written.
    """
    outputs = attempt(read_run_outputs, run)
    training = attempt(read_training, attempt(find_training, run, outputs))
    data = attempt(_open_data, outputs)
    values = {
        "run": run,
        "summary": run.summary,
        "graph": lay_out(run.summary.get("components", ())),
        "tuning": attempt(chart_tuning, run.summary["tuning"]) if run.summary.get("tuning") else None,
        "charts": attempt(chart_training, training),
        "timeline": attempt(lambda found: tell_time(found, training), outputs),
        "evaluation": attempt(_evaluate, outputs, data, run.summary.get("evaluated_split") or "eval"),
        "measured": tell_metrics(run.summary),
        "sliced": tell_slices(run.summary),
        "data": data,
        "described": attempt(_describe, data),
        "declared": _declared(run.text),
        "versions": run.summary.get("versions") or read_versions(),
        "versions_are_of_the_run": "versions" in run.summary,
    }
    write_whole(path, render("report.html.j2", **values), named=True)


def read_run_outputs(run: Run) -> Outputs:
    """Reads what the components of a run made.

    Raises:
        LeftOutError: It is not known.
    """
    if not run.summary:
        raise LeftOutError("This run has left no summary.json: it was killed, or still goes on.")
    return read_outputs(os.path.join(run.home, "metadata.sqlite"), run.summary.get("components", ()))


# TensorFlow is imported by these alone: a run that ended before it made any examples needs none for its report.


def _open_data(outputs: Outputs) -> Any:
    from tfx_estimator.pipeline.report.examples import open_data

    return open_data(outputs)


def _evaluate(outputs: Outputs, data: Any, split: str) -> Any:
    from tfx_estimator.pipeline.report.evaluation import evaluate
    from tfx_estimator.pipeline.report.predictions import predict

    return evaluate(data, predict(outputs, data, split))


def _describe(data: Any) -> Any:
    from tfx_estimator.pipeline.report.evaluation import describe
    from tfx_estimator.pipeline.report.examples import read_statistics

    return describe(data, read_statistics(data))


def _declared(text: str) -> Sequence[dict[str, Any]]:
    """The lines of the declaration: `text`, `path` of the value, its `origin`, and whether somebody has `chosen` it."""
    lines: list[dict[str, Any]] = []
    path: list[str] = []
    for line in text.splitlines():
        match = _LINE.match(line)
        code, origin = (match[1], (match[2] or "").strip(" #")) if match else (line, "")
        key, _, value = code.strip().partition(":")
        path = [*path[: (len(code) - len(code.lstrip())) // 2], key]
        chosen = bool(origin) and not origin.startswith("default")
        told = f"{'.'.join(path)}: {value.strip()}"
        lines.append({"text": code, "path": told, "origin": origin, "chosen": chosen})
    return lines


@dataclass(frozen=True)
class Tuning:
    """The trials as a page shows them.

    Args:
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
