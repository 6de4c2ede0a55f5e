"""Writes a model card as Markdown: data, metrics by slice, baseline, declaration and stack; needs no TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfx_estimator.pipeline.base.files import write_whole
from tfx_estimator.pipeline.report.metrics import compare_metrics, slice_tables
from tfx_estimator.pipeline.report.page import render
from tfx_estimator.pipeline.report.report import declared_lines
from tfx_estimator.pipeline.report.source import Run, read_versions


def write_card(run: Run, path: str) -> None:
    """Writes the model card of a run that has a model."""
    metrics = compare_metrics(run.summary)
    values: dict[str, Any] = {
        "run": run,
        "summary": run.summary,
        "metrics": metrics,
        "compared": any(former for _, _, former, _ in metrics),
        "sliced": slice_tables(run.summary),
        "declared": _chosen(run.text),
        "versions": run.summary.get("versions") or read_versions(),
    }
    write_whole(path, render("model_card.md.j2", **values), named=True)


def _chosen(text: str) -> Sequence[str]:
    """Returns the declaration's lines that are no defaults, each below the keys that it belongs to."""
    kept: list[str] = []
    above: list[str] = []
    for line in declared_lines(text):
        code = str(line["text"])
        depth = (len(code) - len(code.lstrip())) // 2
        above = [*above[:depth], code.rstrip()]
        if line["chosen"]:
            kept += [each for each in above if each]
            above = [""] * len(above)
    return kept
