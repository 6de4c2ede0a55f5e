"""A copied folder of runs, run again, with other runs in the folder of the originals."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Finished, ForkedWorkdir

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

# Identifies the model in any copy.
MARK = "assets.extra/of"


@pytest.fixture
def copied(digits_run: Finished, forks, tmp_path) -> Iterator[ForkedWorkdir]:
    """A copy of a folder whose models were marked afterwards; its latest blessed model is that of the first run."""
    copied = ForkedWorkdir(tmp_path / "other", forks)
    shutil.copytree(digits_run.kept, copied.path)
    shutil.rmtree(copied.path / "digits" / "serving")
    models = list((digits_run.workdir.path / "digits" / "artifacts" / "Trainer" / "model").glob("*/Format-Serving"))
    for model in models:
        (model / MARK).parent.mkdir()
        (model / MARK).touch()
    yield copied
    for model in models:
        shutil.rmtree((model / MARK).parent)


@pytest.mark.long
def test_a_copy_pushes_its_own_model_and_reports_it(digits_run, copied):
    # All components but the reader run again: with fewer steps.
    changed = ("trainer.train_steps=100", "evaluator.min_accuracy=0.3", "evaluator.max_accuracy_drop=0.7")
    declared = ("digits", *(word for each in changed for word in ("--set", each)))
    output, home = copied.run(*declared), copied.path / "digits"
    place = digits_run.workdir.path / "digits"
    assert output.count(f"{home} was moved or copied from {place}: its artifacts are used from here") == 1
    assert copied.states("digits")["TfdsExampleGen"] == "cached"
    summary = copied.summary("digits")
    assert summary["blessed"]
    change = summary["accuracy"] - digits_run.summary["accuracy"]
    assert summary["metrics"]["sparse_categorical_accuracy_diff"] == pytest.approx(change, abs=1e-6)
    assert summary["pushed"].startswith(f"{home}/serving/")
    assert not Path(summary["pushed"], MARK).exists()
    assert summary["model_run"].startswith(f"{home}/artifacts/")

    # From now on its components are cached, as usual.
    assert "was moved" not in copied.run(*declared)
    states = copied.states("digits")
    assert {state for node, state in states.items() if node != "BaselineResolver"} == {"cached"}
    assert copied.summary("digits")["model_run"] == summary["model_run"]
