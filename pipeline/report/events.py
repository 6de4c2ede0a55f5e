"""Reads the TensorBoard event files of a training: its curves, and when it started, saved and started again."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.report.page import LeftOutError

TRAIN = "train"
_FILES = "*tfevents*"


@dataclass
class Series:
    """One curve: steps, and a value for each."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, step: int, value: float) -> None:
        """Adds a point; training that went back to a checkpoint takes back what followed it."""
        while self.steps and self.steps[-1] >= step:
            self.steps.pop()
            self.values.pop()
        self.steps.append(step)
        self.values.append(value)


@dataclass(frozen=True)
class Training:
    """What the event files tell of a training; points are (seconds since the first event, global step)."""

    curves: Mapping[str, Mapping[str, Series]]  # by metric, then by who measured it: `train`, or an evaluation's folder
    progress: list[tuple[float, int]]  # every event of the training that has a step
    # Every start of a session; the first is the training's own, each other a restart's or a resume's.
    starts: list[tuple[float, int]]


def read_training(model_run: str) -> Training:
    """Reads a model run's event files; one that ends in the middle of an event tells what it has."""
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
                    curves.setdefault(value.tag, {}).setdefault(where, Series()).add(event.step, number)
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
    """Event files by the folder that they are in, relative to the model run."""
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

    # The loader stops at a record that is not whole, such as the last one of a killed process.
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
    """Puts the curves of one metric together, whatever tag each was written under."""
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
