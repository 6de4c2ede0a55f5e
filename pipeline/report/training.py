"""A report's training part, from TensorBoard event files: the curves, and a timeline of restarts."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfx_estimator.model_fn.bridge.written import PROOF
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.report.artifacts import Outputs, need
from tfx_estimator.pipeline.report.page import LeftOutError, Missing, attempt, show_number, show_seconds
from tfx_estimator.pipeline.report.plots import draw_curves, draw_progress
from tfx_estimator.pipeline.report.source import Run

TRAIN = "train"
_FILES = "*tfevents*"
_FIRST = ("loss", "accuracy")
_MOST_CURVES = 12
_TITLES = {"global_step/sec": "steps per second", "learning_rate": "learning rate"}


@dataclass
class Series:
    """One curve: the value and time of each step."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list, compare=False)  # seconds since 1970

    def add(self, step: int, value: float, time: float) -> None:
        """Adds a point; removes later steps, which training lost when it resumed from a checkpoint."""
        while self.steps and self.steps[-1] >= step:
            for points in (self.steps, self.values, self.times):
                points.pop()
        self.steps.append(step)
        self.values.append(value)
        self.times.append(time)


@dataclass(frozen=True)
class Training:
    """The content of a training's event files; points are (seconds since the first event, global step)."""

    curves: Mapping[str, Mapping[str, Series]]  # by metric, then by source: `train`, or an evaluation's folder
    progress: list[tuple[float, int]]  # all events of the training that have a step
    # The starts of sessions: the training's own, then those of restarts and resumed runs.
    starts: list[tuple[float, int]]


def read_training(model_run: str) -> Training:
    """Reads a model run's event files, truncated ones up to the last whole event."""
    curves: dict[str, dict[str, Series]] = {}
    progress: list[tuple[float, int]] = []
    starts: list[tuple[float, int]] = []
    for folder, files in sorted(_files(model_run).items()):
        where = TRAIN if folder == "." else folder
        events = sorted((event for path in files for event in _events(path)), key=lambda event: event.wall_time)
        for event in events:
            if where == TRAIN and event.HasField("session_log"):
                progress.append((event.wall_time, event.step))
                if event.session_log.status == event.session_log.START:
                    starts.append((event.wall_time, event.step))
            for value in event.summary.value:
                if (number := _number(value)) is not None:
                    series = curves.setdefault(value.tag, {}).setdefault(where, Series())
                    series.add(event.step, number, event.wall_time)
                    if where == TRAIN:
                        progress.append((event.wall_time, event.step))
    if not curves:
        raise LeftOutError("The training wrote no TensorBoard events.")
    first = min((time for time, _ in progress), default=0.0)
    return Training(
        _gather(curves),
        [(time - first, step) for time, step in progress],
        [(time - first, step) for time, step in starts],
    )


def _files(model_run: str) -> dict[str, list[str]]:
    """Returns the event files by folder, relative to the model run."""
    found: dict[str, list[str]] = {}
    for path in _find(model_run):
        found.setdefault(os.path.relpath(os.path.dirname(path), model_run), []).append(path)
    return found


def _find(model_run: str) -> list[str]:
    if not is_address(model_run):
        return glob.glob(os.path.join(glob.escape(model_run), "**", _FILES), recursive=True)
    from tfx.dsl.io import fileio

    paths = [os.path.join(top, name) for top, _, names in fileio.walk(model_run) for name in names]
    return [path for path in paths if fnmatch.fnmatch(os.path.basename(path), _FILES)]


def _events(path: str) -> Iterator[Any]:
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    # The loader stops at a truncated record, such as the last one of a killed process.
    return LegacyEventFileLoader(path).Load()


def _number(value: Any) -> float | None:
    if value.HasField("simple_value"):
        return value.simple_value
    if value.HasField("tensor") and not value.tensor.tensor_shape.dim:
        from tensorboard.util import tensor_util

        array = tensor_util.make_ndarray(value.tensor)
        return float(array) if array.dtype.kind in "fiu" else None
    return None


def _gather(tags: Mapping[str, Mapping[str, Series]]) -> dict[str, dict[str, Series]]:
    """Groups the curves by metric, which paths of training write under different tags."""
    metrics: dict[str, dict[str, Series]] = {}
    for tag, curves in tags.items():
        for where, series in curves.items():
            # Training reports its loss as `loss`; an evaluation's `loss` is a mean of batch means, where `average_loss`
            # is the mean over examples.
            name = tag.removeprefix("epoch_").removeprefix("train_")
            if name == "average_loss" or (name == "loss" and "average_loss" in tags and where in tags["average_loss"]):
                name = "loss" if name == "average_loss" else ""
            if name:
                metrics.setdefault(name, {})[where] = series
    return metrics


@dataclass(frozen=True)
class Chart:
    """A drawing with its caption."""

    title: str
    svg: str
    text: str


@dataclass(frozen=True)
class Timeline:
    """A training over time."""

    svg: str | Missing  # Missing with too few events
    restarts: list[dict[str, Any]]  # `cause`, `what`, `step`, `lost` and `seconds` of each
    facts: Mapping[str, float]  # numeric properties of the model run
    # Sentences on early stopping, the exported checkpoint and steps skipped in float16.
    decided: list[str]


def find_training(run: Run, outputs: Outputs | Missing) -> str:
    """Finds the training folder of a run: the published one, or that of a failed training."""
    states = {each["node"]: each["state"] for each in run.summary.get("components", ())}
    if states.get("Trainer") in ("failed", "interrupted") and (left := _left_by(run)):
        return left
    if isinstance(outputs, Missing):
        raise LeftOutError(outputs.why)
    return need(outputs, "Trainer", "model_run").uri


def _left_by(run: Run) -> str | None:
    """Returns the training folder of a run that did not publish it; None without one."""
    trainings = os.path.join(run.home, "artifacts", "Trainer", "training")
    noted = run.summary.get("training_folder")
    if not noted or is_address(noted):
        return noted
    # The work folder may have been moved since.
    folder = os.path.join(trainings, os.path.basename(noted))
    if not os.path.isdir(folder):
        raise LeftOutError("A later run has resumed this training, or it has been deleted.")
    return folder


def conversion_rows(folder: str) -> list[tuple[str, list[str]]] | None:
    """Returns table rows with `tfx-estimator convert`'s comparison, for a training of a converted Estimator."""
    path = os.path.join(folder, PROOF)
    if not is_address(path) and not os.path.isfile(path):
        return None
    from tfx_estimator.components.files import read_json

    if (proof := read_json(path)) is None:
        return None
    # Files of older releases do not name the compared output, and have one step.
    compared, steps = proof.get("compared", "logits"), proof.get("next_steps", {})
    rows = [(f"{compared}, {name}", [show_number(value)]) for name, value in proof["logits"].items()]
    rows += [(f"{name} after {proof.get('steps')} more steps", [show_number(value)]) for name, value in steps.items()]
    return [*rows, ("examples with another class", [f"{proof['classes']:,} of {proof['examples']:,}"])]


def chart_training(training: Training) -> list[Chart]:
    """Draws the curves, loss and accuracy first."""
    return [chart_metric(name, _ordered(training.curves[name])) for name in drawn_metrics(training.curves)]


def drawn_metrics(metrics: Iterable[str]) -> list[str]:
    """Returns the metrics to draw: loss and accuracy first, learning rate and speed last."""
    return sorted(metrics, key=lambda name: (_rank(name), name))[:_MOST_CURVES]


def chart_metric(name: str, curves: Mapping[str, Series], runs: Sequence[str] = ()) -> Chart:
    """Draws one metric: see `draw_curves`."""
    last = [f"{who} {show_number(each.values[-1])} at step {each.steps[-1]:,}" for who, each in curves.items()]
    return Chart(_TITLES.get(name, name), draw_curves(curves, runs), "last: " + ", ".join(last))


def make_timeline(outputs: Outputs, training: Training | Missing) -> Timeline:
    """Makes the timeline of a published training; others have no record of restarts."""
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
    texts = {"stopped_early": "Training stopped early", "exported": "The model is of"}
    decided = [f"{text} {model_run.properties[name]}." for name, text in texts.items() if name in model_run.properties]
    if "skipped_steps" in facts:
        number = f"{facts['skipped_steps']:,.0f}"
        decided.append(f"In float16 {number} steps were skipped, because a gradient overflowed.")
    return Timeline(attempt(_draw_time, training, history), restarts, facts, decided)


def _draw_time(training: Training, history: Sequence[Mapping[str, Any]]) -> str:
    if len(training.progress) < 2:
        raise LeftOutError("The training wrote too few events for a timeline.")
    # A restart that follows from another one has no START event, nor has one before the first step.
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
    return {who: curves[who] for who in sorted(curves, key=lambda who: (who != TRAIN, who))}
