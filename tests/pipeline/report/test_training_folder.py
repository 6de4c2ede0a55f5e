"""Whose training a report shows, of a run that published none."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tfx_estimator.pipeline.report.missing import LeftOutError, Missing
from tfx_estimator.pipeline.report.source import read_run
from tfx_estimator.pipeline.report.training import find_training

pytestmark = pytest.mark.unit

TRAINER = {"node": "Trainer", "state": "failed", "seconds": 1.0, "execution_id": None, "upstream": []}


def leave_training(home: Path, name: str, steps: int, age: float) -> Path:
    folder = home / "artifacts" / "Trainer" / "training" / name
    folder.mkdir(parents=True)
    (folder / "declaration.json").write_text(json.dumps({"trainer": {"train_steps": steps, "seed": 42, "added": 1}}))
    os.utime(folder, (then := time.time() - age, then))
    return folder


def summary(age: float, seconds: float, **further: object) -> dict[str, object]:
    started = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() - age))
    return {"state": "failed", "components": [TRAINER], "started": started, "seconds": seconds, **further}


def aged(logs: Path, age: float) -> Path:
    """As it lies when the run ended so long ago."""
    for name in ("declaration.yaml", "summary.json"):
        os.utime(logs / name, (then := time.time() - age, then))
    return logs


def found(logs: Path) -> str:
    return find_training(read_run(str(logs)), Missing("no model_run"))


def test_it_is_the_one_that_the_summary_names(leave_run, tmp_path):
    mine = leave_training(tmp_path / "own", "a-5", 5, 900)
    leave_training(tmp_path / "own", "b-5", 5, 0)
    logs = leave_run("20261122-010000", **summary(1000, 100, training_folder=str(mine)))
    assert found(logs) == str(mine)
    # The folder of runs may be moved.
    moved = (tmp_path / "own").rename(tmp_path / "moved")
    assert found(moved / "logs" / logs.name) == str(moved / "artifacts/Trainer/training/a-5")


def test_one_that_a_later_run_has_published_is_not_replaced_by_another(leave_run, tmp_path):
    leave_training(tmp_path / "own", "b-5", 5, 0)
    logs = leave_run("20261122-010000", **summary(1000, 100, training_folder=str(tmp_path / "own" / "a-5")))
    with pytest.raises(LeftOutError, match="A later run has gone on with this training"):
        found(logs)


def test_a_run_that_came_to_none_has_none(leave_run, tmp_path):
    leave_training(tmp_path / "own", "b-5", 5, 0)
    with pytest.raises(LeftOutError, match="no model_run"):
        found(leave_run("20261122-010000", **summary(1000, 100, training_folder=None)))


def test_of_an_older_summary_it_is_one_of_its_time_and_declaration(leave_run, tmp_path):
    logs = aged(leave_run("20261122-010000", **summary(1000, 100)), 890)
    os.utime(logs / "declaration.yaml", (then := time.time() - 1000, then))
    leave_training(tmp_path / "own", "later-5", 5, 0)
    leave_training(tmp_path / "own", "other-9", 9, 950)
    with pytest.raises(LeftOutError, match="no model_run"):
        found(logs)
    mine = leave_training(tmp_path / "own", "mine-5", 5, 940)
    os.utime(mine, (then := time.time() - 940, then))
    assert found(logs) == str(mine)
