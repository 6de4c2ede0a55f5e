"""A folder of runs that was copied and run again, with other runs in the place where its artifacts were made."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.e2e.conftest import ForkedWorkdir

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SMALL = ("digits", "--set", "trainer.train_steps=20", "--set", "evaluator.min_accuracy=0.2")


def mark(folder: Path) -> None:
    """Has a folder tell who made what is in its models: it is copied with them."""
    for model in (folder / "digits" / "artifacts" / "Trainer" / "model").glob("*/Format-Serving"):
        (model / "assets.extra").mkdir(exist_ok=True)
        (model / "assets.extra" / "of").write_text(folder.name)


def test_a_copy_pushes_its_own_model_and_reports_it(forked, forks, tmp_path):
    forked.run(*SMALL)
    other = ForkedWorkdir(tmp_path / "other", forks)
    shutil.copytree(forked.path, other.path)
    shutil.rmtree(other.path / "digits" / "serving")
    mark(forked.path)

    said = other.run(*SMALL)
    home = other.path / "digits"
    assert said.count(f"{home} was moved or copied from {forked.path}/digits: its artifacts are looked for here") == 1
    assert other.states("digits")["TfdsExampleGen"] == "cached"
    summary = other.summary("digits")
    assert summary["blessed"]
    assert summary["pushed"].startswith(f"{home}/serving/")
    assert not os.path.exists(f"{summary['pushed']}/assets.extra/of")
    assert summary["model_run"].startswith(f"{home}/artifacts/")

    # From now on its components are cached, as ever.
    assert "was moved" not in other.run(*SMALL)
    states = other.states("digits")
    assert {state for node, state in states.items() if node != "BaselineResolver"} == {"cached"}
    assert other.summary("digits")["model_run"] == summary["model_run"]
