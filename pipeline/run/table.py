"""What a person sees of a run's results at its end."""

from __future__ import annotations

import os
import shlex

from rich.console import Console

from tfx_estimator.pipeline.base.text import duration, one_line
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.runtime import PROFILE_TEXT
from tfx_estimator.pipeline.report.metrics import entitle, entitle_slice, place, show_metric
from tfx_estimator.pipeline.report.tuning import tell_best
from tfx_estimator.pipeline.run.summary import Summary

COLUMN = 13
_MOST_SLICES = 100


def print_table(console: Console, results: Summary, logs: str, asynchronous: bool) -> None:
    """Prints the results; how each component went stands above them already.

    Args:
        asynchronous: Whether workers train without waiting for each other.
    """
    counts = ", ".join(f"{count:,} {split}" for split, count in results.examples.items())
    facts = {"data": [f"{results.dataset}: {counts}"]}
    if results.tuning:
        facts["tuned"] = [tell_best(results.tuning)]
    if results.training:
        facts["training"] = [_training(results.training, asynchronous)]
    if results.learning_rate:
        facts["learning rate"] = [results.learning_rate]
    if results.stages:
        facts["stages"] = [results.stages]
    if results.stopped_early:
        facts["stopped early"] = [results.stopped_early]
    if results.exported:
        facts["exported"] = [results.exported]
    if results.restarts:
        facts["restarts"] = results.restarts
    if results.profiles:
        facts["profile"] = [line for folder in results.profiles.values() for line in _profile(folder)]
    if results.accuracy is not None:
        loss = "" if results.loss is None else f", mean loss {results.loss:.4f}"
        of_test = " of test" if results.evaluated_split == "test" else ""
        gained = results.gained()
        against = "" if gained is None else f" ({gained:+.4f} against the latest blessed model)"
        facts["accuracy"] = [f"{results.accuracy:.4f}{against} on {results.evaluated:,} examples{of_test}{loss}"]
    if further := results.further_metrics():
        facts["metrics"] = [
            ", ".join(f"{entitle(name, results.label_names)} {show_metric(value)}" for name, value in further.items())
        ]
    for name, values in results.slices.items():
        facts[f"by {name}"] = [_by_slice(name, values, results.label_names)]
    if results.baseline_dropped:
        facts["baseline"] = [f"none: {results.baseline_dropped}"]
    if results.blessed is not None:
        facts["blessed"] = ["yes" if results.blessed else f"no: {results.why_not_blessed()}"]
    pushed = results.pushed or "none"
    gone = results.pushed and not is_address(results.pushed) and not os.path.exists(results.pushed)
    facts["pushed model"] = [f"{pushed} (deleted since)" if gone else pushed]
    if warnings := results.warnings_beside_restarts():
        facts["warnings"] = [str(each) for each in warnings]
    facts["TensorBoard"] = [f"tensorboard --logdir {shlex.quote(results.model_run)}" if results.model_run else "none"]
    facts["logs"] = [logs]
    if results.seconds:
        facts["elapsed"] = [duration(results.seconds)]
    console.print()
    for title, lines in facts.items():
        for index, line in enumerate(lines):
            console.print(f"{'' if index else title:<{COLUMN}} {one_line(line)}")


def _profile(folder: str) -> list[str]:
    """The summary of a task's profile, and where it is."""
    if is_address(folder):
        return [folder]
    try:
        with open(os.path.join(folder, PROFILE_TEXT), encoding="utf-8") as file:
            return [*file.read().splitlines(), f"  {folder}"]
    except OSError:
        return [f"{folder} (deleted since)"]


def _training(facts: dict[str, float], asynchronous: bool) -> str:
    """Steps, time and pace, as far as they are known."""
    steps, rate, extra = "", "", facts.get("extra_steps")
    if "last_step" in facts:
        reason = ": asynchronous workers end the step that they are in, or do it again" if asynchronous else ""
        more = f" ({extra:.0f} more than declared{reason})" if extra else ""
        epochs = f" ({facts['train_epochs']:g} epochs)" if "train_epochs" in facts else ""
        steps = f"steps {facts['first_step']:.0f} to {facts['last_step']:.0f}{epochs}{more} in "
    if "examples_per_second" in facts:
        rate = f", {facts['examples_per_second']:,.0f} examples/s"
    if "skipped_steps" in facts:
        rate += f", {facts['skipped_steps']:,.0f} steps skipped as a gradient overflowed"
    return f"{steps}{duration(facts['train_seconds'])} (process start and export included){rate}"


def _by_slice(name: str, values: dict[str, tuple[float, int]], label_names: tuple[str, ...]) -> str:
    """Accuracies of the slices of one feature, or of several crossed, labels by their names."""
    order = sorted(values, key=place)
    shown = [f"{entitle_slice(name, value, label_names)} {values[value][0]:.3f}" for value in order[:_MOST_SLICES]]
    more = f", and {len(order) - _MOST_SLICES:,} more in summary.json" if len(order) > _MOST_SLICES else ""
    return ", ".join(shown) + more
