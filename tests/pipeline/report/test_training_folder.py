"""Whose training a report shows, of a run that published none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfx_estimator.pipeline.report.page import LeftOutError, Missing
from tfx_estimator.pipeline.report.source import read_run
from tfx_estimator.pipeline.report.training import find_training

pytestmark = pytest.mark.unit

TRAINER = {"node": "Trainer", "state": "failed", "seconds": 1.0, "execution_id": None, "upstream": []}


def leave_training(home: Path, name: str) -> Path:
    folder = home / "artifacts" / "Trainer" / "training" / name
    folder.mkdir(parents=True)
    return folder


def found(logs: Path) -> str:
    return find_training(read_run(str(logs)), Missing("no model_run"))


def test_it_is_the_one_that_the_summary_names(leave_run, tmp_path):
    mine = leave_training(tmp_path / "own", "a-5")
    leave_training(tmp_path / "own", "b-5")
    logs = leave_run("20261122-010000", state="failed", components=[TRAINER], training_folder=str(mine))
    assert found(logs) == str(mine)
    # The folder of runs may be moved.
    moved = (tmp_path / "own").rename(tmp_path / "moved")
    assert found(moved / "logs" / logs.name) == str(moved / "artifacts/Trainer/training/a-5")


def test_one_that_a_later_run_has_published_is_not_replaced_by_another(leave_run, tmp_path):
    leave_training(tmp_path / "own", "b-5")
    logs = leave_run(
        "20261122-010000", state="failed", components=[TRAINER], training_folder=str(tmp_path / "own" / "a-5")
    )
    with pytest.raises(LeftOutError, match="A later run has gone on with this training"):
        found(logs)


def test_a_run_that_came_to_none_has_none(leave_run, tmp_path):
    leave_training(tmp_path / "own", "b-5")
    with pytest.raises(LeftOutError, match="no model_run"):
        found(leave_run("20261122-010000", state="failed", components=[TRAINER], training_folder=None))
