"""Writes the report of a run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfx_estimator.pipeline.base.files import write_whole
from tfx_estimator.pipeline.folders import METADATA
from tfx_estimator.pipeline.report.artifacts import Outputs, read_outputs
from tfx_estimator.pipeline.report.columns import describe_columns, is_of_table
from tfx_estimator.pipeline.report.metrics import chart_tuning, first_metrics, format_metrics, slice_tables
from tfx_estimator.pipeline.report.page import LeftOutError, attempt, render
from tfx_estimator.pipeline.report.source import Run, read_versions
from tfx_estimator.pipeline.report.training import (
    chart_training,
    conversion_rows,
    find_training,
    make_timeline,
    read_training,
)

# Lengths in pixels of the page. The style sheet contains the height of a row as well.
_ROW = 44
_WIDEST, _NARROWEST, _STEP = 64, 20, 7
_RADIUS = 7
# A line of the resolved declaration, and its value's origin.
_LINE = re.compile(r"(.*?)(  +# .*)?$")


def write_report(run: Run, path: str) -> None:
    """Writes the report of a run, with a sentence in place of each missing part."""
    outputs = attempt(read_run_outputs, run)
    folder = attempt(find_training, run, outputs)
    training = attempt(read_training, folder)
    data = attempt(_open_data, outputs)
    values = {
        "run": run,
        "summary": run.summary,
        "graph": lay_out(run.summary.get("components", ())),
        "tuning": attempt(chart_tuning, run.summary["tuning"]) if run.summary.get("tuning") else None,
        "charts": attempt(chart_training, training),
        "converted": attempt(conversion_rows, folder),
        "timeline": attempt(lambda found: make_timeline(found, training), outputs),
        "evaluation": attempt(_evaluate, outputs, data, run.summary.get("evaluated_split") or "eval"),
        "first": first_metrics(run.summary.get("metrics") or {}),
        "measured": format_metrics(run.summary.get("metrics") or {}, run.summary.get("label_names") or ()),
        "sliced": slice_tables(run.summary),
        "data": data,
        "columns": (of_table := is_of_table(outputs)),
        "described": attempt(describe_columns, outputs) if of_table else attempt(_describe, data),
        "declared": declared_lines(run.text),
        "versions": run.summary.get("versions") or read_versions(),
        "versions_are_of_the_run": "versions" in run.summary,
    }
    write_whole(path, render("report.html.j2", **values), named=True)


def read_run_outputs(run: Run) -> Outputs:
    """Reads the outputs of a run's components."""
    if not run.summary:
        raise LeftOutError("This run has no summary.json: it was killed, or is still running.")
    components = run.summary.get("components", ())
    nodes = {each["execution_id"]: each["node"] for each in components if each.get("execution_id")}
    return read_outputs(os.path.join(run.home, METADATA), nodes)


# Only these import TensorFlow: the report of a run without examples does not need it.


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


def declared_lines(text: str) -> Sequence[dict[str, Any]]:
    """Returns the declaration's lines: `text`, `path` of the value, its `origin`, and `chosen` if it is no default."""
    lines: list[dict[str, Any]] = []
    path: list[str] = []
    for line in text.splitlines():
        match = _LINE.match(line)
        code, origin = (match[1], (match[2] or "").strip(" #")) if match else (line, "")
        key, _, value = code.strip().partition(":")
        path = [*path[: (len(code) - len(code.lstrip())) // 2], key]
        chosen = bool(origin) and not origin.startswith("default")
        shown = f"{'.'.join(path)}: {value.strip()}"
        lines.append({"text": code, "path": shown, "origin": origin, "chosen": chosen})
    return lines


@dataclass(frozen=True)
class Node:
    """One component."""

    name: str
    state: str  # as in the run's summary
    seconds: float
    reason: str  # why it ran
    share: float  # of the longest component's time, 0 to 1
    upstream: list[str]  # the components that it waits for
    y: int


@dataclass(frozen=True)
class Graph:
    """Layout of a pipeline's graph."""

    nodes: list[Node]
    arcs: list[str]  # SVG paths
    x: int
    width: int
    height: int


def lay_out(components: Sequence[Mapping[str, Any]]) -> Graph:
    """Lays out the components of a run's summary: `node`, `state`, `seconds` and, in newer ones, `upstream`."""
    names = [each["node"] for each in components]
    longest = max((each["seconds"] for each in components), default=0) or 1
    nodes = [
        Node(
            each["node"],
            each["state"],
            each["seconds"],
            each.get("reason", ""),
            each["seconds"] / longest,
            [name for name in names if name in each.get("upstream", ())],
            _ROW * index + _ROW // 2,
        )
        for index, each in enumerate(components)
    ]
    spans = [index - names.index(name) for index, node in enumerate(nodes) for name in node.upstream]
    x = min(_NARROWEST + _STEP * max(spans, default=0), _WIDEST)
    arcs = [
        _arc(x, nodes[names.index(name)].y, node.y, index - names.index(name))
        for index, node in enumerate(nodes)
        for name in node.upstream
    ]
    return Graph(nodes, arcs, x, x + _RADIUS + 2, _ROW * len(nodes))


def _arc(x: int, top: int, bottom: int, span: int) -> str:
    if span == 1:
        return f"M{x} {top + _RADIUS}V{bottom - _RADIUS}"
    # The curve reaches three quarters of the way to its handles.
    left = max(x - (_RADIUS + _STEP * span) * 4 / 3, 4 - x / 3)
    return f"M{x - _RADIUS} {top}C{left:.0f} {top} {left:.0f} {bottom} {x - _RADIUS - 1} {bottom}"
