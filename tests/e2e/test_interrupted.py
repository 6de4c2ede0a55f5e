"""Runs ended by signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Optional

import psutil
import pytest

from tests.root import ROOT
from tests.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.faults, pytest.mark.timeout(400)]

# Enough steps that a signal after the first checkpoint arrives during training.
LAST = 250
DECLARED = (
    *("--set", f"trainer.train_steps={LAST}", "--set", "trainer.save_checkpoints_steps=50"),
    *("--set", "trainer.model=own:network", "--set", "evaluator.max_accuracy_drop=null", "--no-dry-run", "--no-report"),
)
# Leaves a daemon behind in each process that calls it.
NETWORK = """
import os

from tfx_estimator.model_fn.networks import mnist_cnn


def network(num_classes):
    if not os.fork():
        os.setsid()
        if not os.fork():
            with open(os.path.join(os.path.dirname(__file__), f"daemon-{os.getpid()}"), "w"):
                os.execve("/bin/sleep", ["sleep", "900"], {})
        os._exit(0)
    os.wait()
    return mnist_cnn(num_classes)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def _start(workdir, *arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "tfx_estimator", "run", "digits", *arguments, "--workdir", str(workdir.path)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.long),
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGKILL, -9, marks=pytest.mark.long),
    ],
)
def test_an_ended_run_leaves_nothing_running_and_the_next_resumes(
    digits_run, temporary, tmp_path, monkeypatch, number, code
):
    workdir = digits_run.workdir
    (tmp_path / "own.py").write_text(NETWORK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    # Its own training, in the shared folder.
    declared = (*DECLARED, "--set", f"trainer.seed={int(number)}")
    run = _start(workdir, *declared)
    try:
        step = _wait_for_checkpoint(run, workdir.path / "digits" / "artifacts" / "Trainer" / "training")
        tasks = psutil.Process(run.pid).children(recursive=True)
        os.kill(run.pid, number)
        output, _ = run.communicate(timeout=30)
    finally:
        run.kill()
        run.wait()
    assert run.returncode == code
    assert "Traceback" not in output
    assert tasks
    gone, alive = psutil.wait_procs(tasks, timeout=10)
    assert len(gone) == len(tasks), alive
    assert bool(list(temporary.iterdir())) is (number == signal.SIGKILL)

    # The same number of steps: fewer would be another training. The reader may close the pipe meanwhile.
    assert workdir.run_unread("digits", *declared) == ""
    log = sorted((workdir.path / "digits" / "logs").glob("*/pipeline.log"))[-1].read_text()
    assert f"TensorBoard   tensorboard --logdir {workdir.path}" in log
    results = workdir.summary("digits")
    assert results["training"]["first_step"] >= step
    assert results["training"]["last_step"] == LAST
    assert results["blessed"] is True
    daemons = [int(path.name.rpartition("-")[2]) for path in tmp_path.glob("daemon-*")]
    assert len(daemons) >= 2
    assert not [pid for pid in daemons if psutil.pid_exists(pid)]
    assert not list(temporary.iterdir())


# The component, and the log line when it starts.
PLACES = {
    "TfdsExampleGen": None,
    "StatisticsGen": " ImageSchemaGen ",
    "Transform": " ExampleValidator ",
    "Evaluator": " BaselineResolver ",
}


@pytest.mark.parametrize(
    "cases",
    [
        [("TfdsExampleGen", signal.SIGINT)],
        pytest.param(
            [
                ("TfdsExampleGen", signal.SIGTERM),
                ("TfdsExampleGen", signal.SIGKILL),
                ("StatisticsGen", signal.SIGINT),
                ("StatisticsGen", signal.SIGTERM),
                ("Transform", signal.SIGTERM),
                ("Transform", signal.SIGINT),
                ("Evaluator", signal.SIGTERM),
                ("Evaluator", signal.SIGINT),
            ],
            marks=pytest.mark.long,
        ),
    ],
    ids=["some", "all"],
)
def test_a_signal_ends_any_component_at_once_and_the_next_run_continues(workdir, temporary, cases):
    for component, number in cases:  # completed ones are cached
        run = _start(workdir, "--set", "trainer.train_steps=50")
        try:
            _wait_for_component(run, workdir.path / "digits" / "artifacts", PLACES[component])
            start = time.monotonic()
            run.send_signal(number)
            output, _ = run.communicate(timeout=30)
        finally:
            run.kill()
            run.wait()
        # 2 on an idle machine.
        assert time.monotonic() - start < 8
        if number == signal.SIGKILL:
            assert run.returncode == -number
            assert list(temporary.iterdir())
            continue
        assert run.returncode == 128 + number, output
        word = "interrupted" if number == signal.SIGINT else "ended by SIGTERM"
        assert f"tfx-estimator: {word} in component {component}; the next run continues from there" in output
        assert workdir.states("digits")[component] == "interrupted"
        assert "Traceback" not in output
        assert not list(temporary.iterdir())


def _wait_for_component(run: subprocess.Popen, artifacts: Path, printed: Optional[str]) -> None:
    if printed:
        while printed not in run.stdout.readline():
            assert run.poll() is None
        time.sleep(0.5)
        return

    def is_at_work() -> bool:
        assert run.poll() is None, f"the run has ended with {run.returncode}"
        return any(artifacts.glob("TfdsExampleGen/examples/*/.unfinished"))

    wait_until(is_at_work, "the mark of examples that are under way", 120, every=0.005)


def _wait_for_checkpoint(run: subprocess.Popen, training: Path) -> int:
    """Waits for a checkpoint after the first step, and returns its step."""

    def first() -> int:
        assert run.poll() is None, f"the run has ended with {run.returncode}"
        steps = [int(path.stem.rsplit("-", 1)[-1]) for path in training.glob("*/model.ckpt-*.index")]
        return min((step for step in steps if step >= 50), default=0)

    return wait_until(first, f"a checkpoint of a step from 50 on in {training}", 120, every=0.05)
