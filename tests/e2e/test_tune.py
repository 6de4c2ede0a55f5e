"""A pipeline with a Tuner: what it says, what it leaves, and what goes on after any end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import Workdir
from tests.root import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]

DECLARATION = """\
name: tuned
data: {dataset: digits, splits: {train: "train[:80%]", eval: "train[80%:]"}, shards: 2}
trainer:
  path: PATH
  model: mnist_cnn
  train_steps: 80
  global_batch_size: 64
  save_checkpoints_steps: 20
tune:
  strategy: STRATEGY
  max_trials: 4
  parallel_trials: PARALLEL
  ranges:
    trainer.optimizer.learning_rate: {min: 1e-4, max: 0.1, sampling: log}
    trainer.label_smoothing: [0.0, 0.1]
"""


def declare(folder: Path, path: str = "keras", strategy: str = "random", parallel: int = 1) -> str:
    file = folder / "tuned.yaml"
    text = DECLARATION.replace("PATH", path).replace("STRATEGY", strategy).replace("PARALLEL", str(parallel))
    file.write_text(text)
    return str(file)


def trials(workdir: Workdir) -> list[dict]:
    """What is known of the trials, but for how long they took."""
    return [{**each, "seconds": 0} for each in workdir.summary("tuned")["tuning"]["trials"]]


def end_in_trial(workdir: Workdir, file: str, number: int, by: signal.Signals) -> None:
    """Starts a run, and ends it when a trial has written a checkpoint."""
    command = [sys.executable, "-m", "tfx_estimator", "run", "--no-report", file, "--workdir", str(workdir.path)]
    pattern = f"tuned/artifacts/Tuner/tuning/*/trials/{number:04d}/training/*-[2-7]*.index"
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        try:
            deadline = time.monotonic() + 240
            while not list(workdir.path.glob(pattern)):
                assert run.poll() is None, run.stdout and run.stdout.read()
                assert time.monotonic() < deadline
                time.sleep(0.02)
            os.kill(run.pid, by)
            run.communicate(timeout=60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                run.kill()
    assert run.returncode == (-9 if by is signal.SIGKILL else 128 + by)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> tuple[Workdir, str, str]:
    """A run with four trials, what it printed, and its declaration."""
    folder = tmp_path_factory.mktemp("tuned")
    workdir, file = Workdir(folder / "runs"), declare(folder)
    return workdir, workdir.run(file, "--report"), file


def test_the_best_values_train_the_model_and_it_is_said(undisturbed):
    workdir, said, _ = undisturbed
    results = workdir.summary("tuned")
    tuning = results["tuning"]
    best = next(each for each in tuning["trials"] if each["number"] == tuning["best"])
    assert best["score"] == max(each["score"] for each in tuning["trials"])
    assert len(re.findall(r"trial \d/4: accuracy 0\.\d{4}, ", said)) == 4
    table = re.search(r"  trial +label_smoothing +learning_rate +accuracy +steps +seconds\n((?: .*\n){4})", said)
    assert table
    [line] = [line for line in table[1].splitlines() if line.endswith("best")]
    assert line.split()[0] == str(best["number"])
    assert re.search(rf"^tuned  .*trial {best['number']} of 4$", said, re.MULTILINE)
    # The Trainer had these values, and no others.
    rate = best["values"]["trainer.optimizer.learning_rate"]
    stored = json.loads((Path(results["model_run"]) / "declaration.json").read_text())
    assert stored["trainer"]["optimizer"]["learning_rate"] == rate
    assert results["training"]["eval_accuracy"] == pytest.approx(best["metrics"]["accuracy"], rel=1e-5)
    [report] = (workdir.path / "tuned" / "logs").glob("*/report.html")
    page = report.read_text()
    assert page.count("</tr>", page.index('id="trials"'), page.index("</table>", page.index('id="trials"'))) == 5
    assert "accuracy by learning_rate" in page


def test_a_second_run_is_cached_and_more_trials_go_on(undisturbed):
    workdir, _, file = undisturbed
    before = trials(workdir)
    workdir.run(file)
    assert workdir.states("tuned")["Tuner"] == workdir.states("tuned")["Trainer"] == "cached"
    assert trials(workdir) == before
    said = workdir.run(file, "--set", "tune.max_trials=5")
    assert trials(workdir)[:4] == before
    assert len(trials(workdir)) == 5
    assert "trial 5/5" in said


@pytest.mark.parametrize("by", [signal.SIGKILL])
def test_a_tuning_that_was_ended_comes_to_what_it_would_have_come_to(undisturbed, tmp_path, by):
    workdir = Workdir(tmp_path / "runs")
    file = declare(tmp_path)
    end_in_trial(workdir, file, 2, by)
    [first] = workdir.path.glob("tuned/artifacts/Tuner/tuning/*/trials/0001/trial.json")
    written = first.stat().st_mtime
    workdir.run(file)
    reference, _, _ = undisturbed
    assert trials(workdir) == trials(reference)[:4]
    assert first.stat().st_mtime == written
    logs = list(first.parents[1].glob("0002/training/logs/chief-0.attempt-*.log"))
    assert len(logs) == 2
