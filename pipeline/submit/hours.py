"""How long a training will take: from its steps, and the pace that an earlier run of it here has measured."""

from __future__ import annotations

import os
from typing import Optional

from tfx_estimator.pipeline.base.text import duration
from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.report.source import Run, log_folders, read_run

_PACE, _TRAINER, _RAN = "examples_per_second", "Trainer", "ran"


def estimate_hours(declaration: Declaration, runs: str) -> str:
    """Estimates, in words; says so where nothing is known.

    Args:
        runs: Folder of runs, in which that of the pipeline is looked for.
    """
    trainer = declaration.trainer
    if (run := _measured(declaration, runs)) is None:
        return (
            f"cannot be told: no finished run in {os.path.join(runs, declaration.name)} has measured this model's "
            "pace; name the folder of runs by --runs"
        )
    pace = run.summary["training"][_PACE]
    steps = trainer.train_steps
    if steps is None:
        if not (examples := run.summary.get("examples", {}).get("train")):
            return f"cannot be told: {run.logs} does not say how many examples an epoch has"
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
    # A module file may lie elsewhere by now.
    return os.path.basename(str(measured)) == os.path.basename(str(wanted))
