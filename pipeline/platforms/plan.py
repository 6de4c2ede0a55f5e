"""The resources of a compiled pipeline, and an estimate of its duration from an earlier local run."""

from __future__ import annotations

import json
import os
from typing import Optional

import yaml

from tfx_estimator.pipeline.base.text import duration
from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.platforms.rows import Row
from tfx_estimator.pipeline.platforms.services import compiler_of
from tfx_estimator.pipeline.report.source import Run, log_folders, read_run

# Keys and values in the summary of a run.
_PACE, _TRAINER, _RAN = "examples_per_second", "Trainer", "ran"


def read_plan(text: str, target: str) -> list[Row]:
    """Reads the resources from a compiled pipeline.

    Args:
        target: One of `registry.ALL_TARGETS`.
    """
    # The YAML parser would read JSON numbers like 1e-07 as text.
    documents = [json.loads(text)] if text.startswith("{") else [*yaml.load_all(text, yaml.CSafeLoader)]
    return list(compiler_of(target).rows(documents))


def lines(rows: list[Row], more: dict[str, str]) -> list[str]:
    """Returns a table of the resources, followed by the image and further lines by their titles."""
    titles = Row("step", "machine", "accelerator", "")
    images = list(dict.fromkeys(row.image for row in rows))
    cells = [titles, *rows]
    widths = [max(len(row[place]) for row in cells) for place in range(3)]
    table = ["  ".join(row[place].ljust(widths[place]) for place in range(3)).rstrip() for row in cells]
    more = {"image": ", ".join(images), **more}
    width = max(map(len, more))
    return [*table, "", *(f"{title:<{width}}  {value}" for title, value in more.items())]


def estimate_hours(declaration: Declaration, runs: str) -> str:
    """Returns a text with the estimated duration, or with the reason why there is none.

    Args:
        runs: Folder of runs that may contain one of this pipeline.
    """
    trainer = declaration.trainer
    if (run := _measured(declaration, runs)) is None:
        return (
            f"unknown: no finished run in {os.path.join(runs, declaration.name)} has measured this model's pace; name "
            "the folder of runs by --runs"
        )
    pace = run.summary["training"][_PACE]
    steps = trainer.train_steps
    if steps is None:
        if not (examples := run.summary.get("examples", {}).get("train")):
            return f"unknown: {run.logs} does not have the number of examples of an epoch"
        steps = trainer.steps_of(examples)
    seconds = steps * trainer.global_batch_size / pace
    text = (
        f"about {duration(seconds)} of training: {steps:,} steps of {trainer.global_batch_size:,} examples, at the "
        f"{pace:,.0f} examples/s of {run.logs}"
    )
    others = [each for each in run.summary.get("components", ()) if each["node"] != _TRAINER]
    if others and all(each["state"] == _RAN for each in others):
        text += f"; the other steps took {duration(sum(each['seconds'] for each in others))} there"
    if declaration.tune is not None:
        text += "; without the trials of `tune`"
    return text + "; on machines as fast as that run's"


def _measured(declaration: Declaration, runs: str) -> Optional[Run]:
    """Finds the latest run that has trained this model."""
    folder = os.path.join(os.path.expanduser(runs), declaration.name, "logs")
    for logs in reversed(log_folders(folder)):
        try:
            run = read_run(logs)
        except (OSError, ValueError):
            continue
        same = all(
            _same(run.values.get(f"trainer.{key}"), getattr(declaration.trainer, key))
            for key in ("model", "module_file")
        )
        pace = run.summary.get("training", {}).get(_PACE)
        if same and isinstance(pace, (int, float)) and pace > 0:
            return run
    return None


def _same(measured: object, wanted: Optional[str]) -> bool:
    # A module file may have been moved since.
    return os.path.basename(str(measured)) == os.path.basename(str(wanted))
