"""The training's part of a report: its curves, and its restarts on a time line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.report.artifacts import Outputs, need
from tfx_estimator.pipeline.report.events import Series, Training
from tfx_estimator.pipeline.report.page import LeftOutError, Missing, attempt, show_number, show_seconds
from tfx_estimator.pipeline.report.plots import draw_curves, draw_progress
from tfx_estimator.pipeline.report.source import Run

_FIRST = ("loss", "accuracy")
_MOST_CURVES = 12
_TITLES = {"global_step/sec": "steps per second", "learning_rate": "learning rate"}


@dataclass(frozen=True)
class Chart:
    """A drawing with what it says."""

    title: str
    svg: str
    text: str  # what can be read from it


@dataclass(frozen=True)
class Timeline:
    """How a training went on over time."""

    svg: str | Missing  # the drawing, where there is enough of it
    restarts: list[dict[str, Any]]  # `cause`, `what`, `step`, `lost` and `seconds` of each
    facts: Mapping[str, float]  # of the model run, by name
    # Where training ended early, which checkpoint is the model, and why; what was skipped in float16.
    decided: list[str]


def find_training(run: Run, outputs: Outputs | Missing) -> str:
    """Finds the training of a run: the published one, or what one that failed has left."""
    states = {each["node"]: each["state"] for each in run.summary.get("components", ())}
    if states.get("Trainer") in ("failed", "interrupted") and (left := _left_by(run)):
        return left
    if isinstance(outputs, Missing):
        raise LeftOutError(outputs.why)
    return need(outputs, "Trainer", "model_run").uri


def _left_by(run: Run) -> str | None:
    """The training folder of a run that did not publish it; None if it came to none."""
    trainings = os.path.join(run.home, "artifacts", "Trainer", "training")
    noted = run.summary.get("training_folder")
    if not noted or is_address(noted):
        return noted
    # The folder of runs may have been moved since.
    folder = os.path.join(trainings, os.path.basename(noted))
    if not os.path.isdir(folder):
        raise LeftOutError("A later run has gone on with this training, or it has been deleted.")
    return folder


def chart_training(training: Training) -> list[Chart]:
    """Draws the curves, loss and accuracy first."""
    return [chart_metric(name, _ordered(training.curves[name])) for name in in_order(training.curves)]


def in_order(metrics: Iterable[str]) -> list[str]:
    """Returns the metrics that are drawn: loss and accuracy first, what is not learned last."""
    return sorted(metrics, key=lambda name: (_rank(name), name))[:_MOST_CURVES]


def chart_metric(name: str, curves: Mapping[str, Series], runs: Sequence[str] = ()) -> Chart:
    """Draws one metric: see `draw_curves`."""
    last = [f"{who} {show_number(each.values[-1])} at step {each.steps[-1]:,}" for who, each in curves.items()]
    return Chart(_TITLES.get(name, name), draw_curves(curves, runs), "last: " + ", ".join(last))


def tell_time(outputs: Outputs, training: Training | Missing) -> Timeline:
    """Puts the restarts of a published training, which alone tells of them, on a time line."""
    model_run = need(outputs, "Trainer", "model_run")
    history = model_run.read_json("history") or []
    facts = {name: value for name, value in model_run.properties.items() if isinstance(value, float)}
    restarts = [
        {
            "cause": each["cause"],
            "what": each["what"],
            "step": max(each["step"], 0),
            "lost": "—" if each.get("lost_steps") is None else f"{each['lost_steps']:,}",
            "seconds": "—" if each.get("seconds") is None else show_seconds(each["seconds"]),
        }
        for each in history
    ]
    told = {"stopped_early": "Training stopped early", "exported": "The model is of"}
    decided = [f"{words} {model_run.properties[name]}." for name, words in told.items() if name in model_run.properties]
    if "skipped_steps" in facts:
        number = f"{facts['skipped_steps']:,.0f}"
        decided.append(f"In float16 {number} steps were skipped, as a gradient overflowed.")
    return Timeline(attempt(_draw_time, training, history), restarts, facts, decided)


def _draw_time(training: Training, history: Sequence[Mapping[str, Any]]) -> str:
    if len(training.progress) < 2:
        raise LeftOutError("The training wrote too few events for a time line.")
    # A restart that is the consequence of another one has no start of its own, nor has one before the first step.
    known = [each for each in history if not each.get("follows") and each["step"] >= 0]
    lost = []
    if len(known) == len(training.starts) - 1:
        for restart, (start, _) in zip(known, training.starts[1:]):
            lost.append((max(start - (restart.get("seconds") or 0), 0), start))
    return draw_progress(training.progress, training.starts, lost)


def _rank(name: str) -> int:
    if name in _FIRST:
        return _FIRST.index(name)
    return 3 if name in _TITLES else 2


def _ordered(curves: Mapping[str, Series]) -> dict[str, Series]:
    return {who: curves[who] for who in sorted(curves, key=lambda who: (who != "train", who))}
