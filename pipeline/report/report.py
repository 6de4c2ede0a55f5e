"""Makes the report of a run."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from tfx_estimator.pipeline.base.files import write_whole
from tfx_estimator.pipeline.report.artifacts import Outputs, read_outputs
from tfx_estimator.pipeline.report.events import read_training
from tfx_estimator.pipeline.report.graph import lay_out
from tfx_estimator.pipeline.report.metrics import tell_metrics, tell_slices
from tfx_estimator.pipeline.report.page import LeftOutError, attempt, render
from tfx_estimator.pipeline.report.source import Run, read_versions
from tfx_estimator.pipeline.report.training import chart_training, find_training, tell_time
from tfx_estimator.pipeline.report.tuning import chart_tuning

FILE = "report.html"
# A line of the resolved declaration, and where its value came from.
_LINE = re.compile(r"(.*?)(  +# .*)?$")


def write_report(run: Run, path: str) -> None:
    """Writes the report of a run: with what there is, and one sentence in place of what there is not."""
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
    """Reads what the components of a run made."""
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
