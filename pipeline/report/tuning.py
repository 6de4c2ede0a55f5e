"""What a Tuner found: read, said in one line, and charted; what needs no chart imports no TensorFlow."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

from tfx_estimator.pipeline.config.put_values import TRIALS_FILE, short_names, show_value, tell_values
from tfx_estimator.pipeline.report.page import show_number, show_seconds

if TYPE_CHECKING:
    from tfx_estimator.pipeline.report.training import Chart

_COMPLETED = "completed"
_MOST_CHARTS = 9


def read_tuning(uri: str) -> Optional[dict[str, Any]]:
    """Reads what `trials.json` holds, of the URI of `tuner_results`; None where it is gone."""
    from tfx.dsl.io import fileio

    path = os.path.join(uri, TRIALS_FILE)
    if not fileio.exists(path):
        return None
    with fileio.open(path) as file:
        return json.loads(file.read())


def tell_best(found: Mapping[str, Any]) -> str:
    """Says in one line which values were used, and why."""
    trials = found["trials"]
    best = next(each for each in trials if each["number"] == found["best"])
    failed = sum(each["status"] != _COMPLETED for each in trials)
    more = f", {failed} of which failed" if failed else ""
    metric = found["objective"]["metric"]
    return f"{tell_values(best['values'])}: {metric} {best['score']:.4f}, trial {best['number']} of {len(trials)}{more}"


@dataclass(frozen=True)
class Tuning:
    """The trials as a page shows them."""

    metric: str
    columns: list[str]  # names of the values
    rows: list[tuple[int, bool, list[str], str]]  # number, whether it is the best, cells, and what is to be said of it
    charts: list[Chart]  # the objective over the trials, and over each value that is a number


def chart_tuning(found: Mapping[str, Any]) -> Tuning:
    """Lays out the table, and draws the charts."""
    from tfx_estimator.pipeline.report.plots import draw_trials
    from tfx_estimator.pipeline.report.training import Chart

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
