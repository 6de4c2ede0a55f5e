"""Installing a wheel as users do, by the pip that Python brings, from an empty cache: in minutes, not hours."""

from __future__ import annotations

import time
import venv

import pytest

from tests.stack import HERE
from tests.wheel.conftest import Environment

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(2400)]

# pip 23.0.1 took 5 minutes on 2 busy cores; without the pins it had not ended after 50.
SECONDS = 1800


@pytest.fixture
def fresh(tmp_path):
    """An environment with nothing but Python's own pip."""
    venv.create(tmp_path / "fresh", with_pip=True, symlinks=True)
    return Environment(tmp_path / "fresh")


def test_the_locked_extra_is_one_command_and_the_pipeline_runs(fresh, distributions, tmp_path):
    print(fresh.run("pip", "--version", cwd=tmp_path))
    started = time.monotonic()
    fresh.run(
        "pip", "install", "--no-cache-dir", f"{distributions.wheel}[{HERE.extra}-locked]", cwd=tmp_path, seconds=SECONDS
    )
    print(f"{(time.monotonic() - started) / 60:.1f} minutes")
    assert "No broken requirements found" in fresh.run("python", "-m", "pip", "check", cwd=tmp_path)
    few = ("--set", "trainer.train_steps=100", "--set", "evaluator.min_accuracy=0.3")
    said = fresh.run("tfx-estimator", "run", "digits", *few, cwd=tmp_path)
    assert "pushed model" in said


def test_without_the_lock_file_pip_ends_as_well(fresh, distributions, tmp_path):
    command = ("pip", "install", "--no-cache-dir", "--dry-run", f"{distributions.wheel}[{HERE.extra}]")
    said = fresh.run(*command, cwd=tmp_path, seconds=SECONDS)
    assert "Would install" in said
    for pin in (f"tfx-{HERE.tfx}", f"tensorflow-{HERE.tensorflow}", "tensorflow-estimator-2.15.0"):
        assert pin in said
