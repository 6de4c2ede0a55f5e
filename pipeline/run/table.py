"""Prints a run's results as a table."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

from rich.console import Console

from tfx_estimator.pipeline.base.text import duration, one_line
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.runtime import PROFILE_TEXT
from tfx_estimator.pipeline.report.metrics import (
    DIFF,
    first_metrics,
    format_best_trial,
    format_metrics,
    show_metric,
    slice_name,
    slice_order,
)
from tfx_estimator.pipeline.run.summary import Summary

COLUMN = 13
_MOST_SLICES = 100


def print_table(console: Console, results: Summary, logs: str, asynchronous: bool) -> None:
    """Prints the results; `asynchronous` explains why workers ran more steps than declared."""
    counts = ", ".join(f"{count:,} {split}" for split, count in results.examples.items())
    first = first_metrics(results.metrics)
    others = (each for each in format_metrics(results.metrics, results.label_names) if each[0] not in first)
    metrics = [f"{name} {value}" for name, value, _ in others]
    # Empty values are not shown.
    facts: dict[str, Optional[str] | Sequence[str]] = {
        "data": f"{results.dataset}: {counts}" if results.dataset else counts,
        "tuned": format_best_trial(results.tuning) if results.tuning else None,
        "training": _training(results.training, asynchronous) if results.training else None,
        "learning rate": results.learning_rate,
        "stages": results.stages,
        "stopped early": results.stopped_early,
        "exported": results.exported,
        "restarts": results.restarts,
        "profile": [line for folder in results.profiles.values() for line in _profile(folder)],
        "accuracy": _accuracy(results),
        "evaluation": _first(results, first),
        "metrics": ", ".join(metrics),
        **dict(_by_slices(results, first)),
        "baseline": results.baseline_dropped and f"none: {results.baseline_dropped}",
        "blessed": _blessed(results),
        "pushed model": _pushed(results.pushed),
        "warnings": [str(each) for each in results.warnings_without_restarts()],
        "TensorBoard": f"tensorboard --logdir {shlex.quote(results.model_run)}" if results.model_run else "none",
        "logs": logs,
        "elapsed": duration(results.seconds) if results.seconds else "",
    }
    console.print()
    for title, value in facts.items():
        for index, line in enumerate(filter(None, [value] if isinstance(value, str) else value or ())):
            console.print(f"{'' if index else title:<{COLUMN}} {one_line(line)}")


def _accuracy(results: Summary) -> str:
    if results.accuracy is None:
        return ""
    change = results.accuracy_change()
    against = "" if change is None else f" ({change:+.4f} against the latest blessed model)"
    of_test = " of test" if results.evaluated_split == "test" else ""
    loss = "" if results.loss is None else f", mean loss {results.loss:.4f}"
    return f"{results.accuracy:.4f}{against} on {results.evaluated:,} examples{of_test}{loss}"


def _first(results: Summary, first: Mapping[str, str]) -> str:
    """Returns a table's metrics, in brackets against the latest blessed model."""
    shown = []
    for name, title in first.items():
        change = results.metrics.get(f"{name}{DIFF}")
        against = "" if change is None else f" ({change:+.4f} against the latest blessed model)"
        shown.append(f"{title} {show_metric(results.metrics[name])}{against}")
    return f"{', '.join(shown)} on {results.evaluated:,} examples" if shown else ""


def _blessed(results: Summary) -> str:
    if results.blessed is None:
        return ""
    return "yes" if results.blessed else f"no: {results.why_not_blessed()}"


def _pushed(folder: Optional[str]) -> str:
    if folder is None or is_address(folder) or os.path.exists(folder):
        return folder or "none"
    return f"{folder} (deleted since)"


def _profile(folder: str) -> list[str]:
    """Returns a task's profile summary and its folder."""
    if is_address(folder):
        return [folder]
    try:
        with open(os.path.join(folder, PROFILE_TEXT), encoding="utf-8") as file:
            return [*file.read().splitlines(), f"  {folder}"]
    except OSError:
        return [f"{folder} (deleted since)"]


def _training(facts: dict[str, float], asynchronous: bool) -> str:
    """Returns steps, time and rate, as far as known."""
    steps, rate, extra = "", "", facts.get("extra_steps")
    if "last_step" in facts:
        reason = ": asynchronous workers finish or repeat their current step" if asynchronous else ""
        more = f" ({extra:.0f} more than declared{reason})" if extra else ""
        epochs = f" ({facts['train_epochs']:g} epochs)" if "train_epochs" in facts else ""
        steps = f"steps {facts['first_step']:.0f} to {facts['last_step']:.0f}{epochs}{more} in "
    if "examples_per_second" in facts:
        rate = f", {facts['examples_per_second']:,.0f} examples/s"
    if "skipped_steps" in facts:
        rate += f", {facts['skipped_steps']:,.0f} steps skipped as a gradient overflowed"
    return f"{steps}{duration(facts['train_seconds'])} (process start and export included){rate}"


def _by_slices(results: Summary, first: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields title and accuracies, or a table's first metric, of each feature's slices, or of crossed features'."""
    for name, values in results.slices.items():
        yield f"by {name}", _by_slice(name, values, results.label_names)
    for name, found in results.slice_metrics.items() if first and not results.slices else ():
        metric, title = next(iter(first.items()))
        values = {value: (metrics[metric], 0) for value, metrics in found.items() if metric in metrics}
        yield f"{title} by {name}", _by_slice(name, values, results.label_names)


def _by_slice(name: str, values: dict[str, tuple[float, int]], label_names: tuple[str, ...]) -> str:
    """Returns the first number of each slice."""
    order = sorted(values, key=slice_order)
    shown = [f"{slice_name(name, value, label_names)} {values[value][0]:.3f}" for value in order[:_MOST_SLICES]]
    more = f", and {len(order) - _MOST_SLICES:,} more in summary.json" if len(order) > _MOST_SLICES else ""
    return ", ".join(shown) + more
