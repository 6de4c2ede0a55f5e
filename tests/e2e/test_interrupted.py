"""Runs that are ended from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.root import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.faults, pytest.mark.timeout(300)]

STEPS = ("--set", "trainer.train_steps=1000", "--set", "trainer.save_checkpoints_steps=50")


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.long),
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGKILL, -9, marks=pytest.mark.long),
    ],
)
def test_an_ended_run_leaves_nothing_running_and_the_next_resumes(workdir, number, code):
    command = [sys.executable, "-m", "tfx_estimator", "run", "digits", *STEPS, "--workdir", str(workdir.path)]
    run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        step = _wait_for_checkpoint(workdir.path / "digits" / "artifacts" / "Trainer" / "training")
        task = psutil.Process(run.pid).children(recursive=True)
        os.kill(run.pid, number)
        said, _ = run.communicate(timeout=30)
    finally:
        run.kill()
        run.wait()
    assert run.returncode == code
    assert "Traceback" not in said
    assert task
    gone, alive = psutil.wait_procs(task, timeout=10)
    assert len(gone) == len(task), alive
    if number != signal.SIGKILL:
        left = workdir.summary("digits")
        assert (left["state"], left["exit_code"]) == ("interrupted", code)
        states = workdir.states("digits")
        assert (states["Trainer"], states["Pusher"]) == ("failed", "not reached")
        assert left["seconds"] > sum(each["seconds"] for each in left["components"])

    # Fewer steps than are done would be another training; so the same number. Whoever reads may leave meanwhile.
    assert workdir.run_unread("digits", *STEPS) == ""
    log = sorted((workdir.path / "digits" / "logs").glob("*/pipeline.log"))[-1].read_text()
    assert f"TensorBoard   tensorboard --logdir {workdir.path}" in log
    results = workdir.summary("digits")
    assert results["training"]["first_step"] >= step
    assert results["training"]["last_step"] == 1000
    assert results["blessed"] is True


def _wait_for_checkpoint(training: Path) -> int:
    """Waits for a checkpoint after the first step, and returns its step."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        steps = [int(path.stem.rsplit("-", 1)[-1]) for path in training.glob("*/model.ckpt-*.index")]
        if steps and max(steps) >= 50:
            return min(step for step in steps if step >= 50)
        time.sleep(0.05)
    raise AssertionError("no checkpoint within 120 s")
