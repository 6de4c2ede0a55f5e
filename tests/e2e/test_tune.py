"""A pipeline with a Tuner: its output, its artifacts, and resuming after any end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from tests.e2e.conftest import Workdir
from tests.examples import copy_example, edit
from tests.root import ROOT, run_python
from tests.waiting import wait_until

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
    """Returns the records of the trials, without their durations."""
    return [{**each, "seconds": 0} for each in workdir.summary("tuned")["tuning"]["trials"]]


def end_in_trial(workdir: Workdir, file: str, number: int, by: signal.Signals, *more: str) -> None:
    """Starts a run, and ends it after a trial's checkpoint that is not the last."""
    command = [sys.executable, "-m", "tfx_estimator", "run", "--no-report", file, *more]
    command += ["--workdir", str(workdir.path)]
    pattern = f"tuned/artifacts/Tuner/tuning/*/trials/{number:04d}/training/*-[2-7]*.index"
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        try:

            def is_under_way() -> bool:
                assert run.poll() is None, run.stdout and run.stdout.read()
                return any(workdir.path.glob(pattern))

            wait_until(is_under_way, f"{pattern} in {workdir.path}", 240)
            os.kill(run.pid, by)
            run.communicate(timeout=60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                run.kill()
    assert run.returncode == (-9 if by is signal.SIGKILL else 128 + by)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> tuple[Workdir, str, str]:
    """A run with four trials, its output, and its declaration."""
    folder = tmp_path_factory.mktemp("tuned")
    workdir, file = Workdir(folder / "runs"), declare(folder)
    return workdir, workdir.run(file, "--report"), file


def test_the_best_values_train_the_model_and_are_printed(undisturbed):
    workdir, output, _ = undisturbed
    results = workdir.summary("tuned")
    tuning = results["tuning"]
    best = next(each for each in tuning["trials"] if each["number"] == tuning["best"])
    assert best["score"] == max(each["score"] for each in tuning["trials"])
    assert len(re.findall(r"trial \d/4: accuracy 0\.\d{4}, ", output)) == 4
    table = re.search(r"  trial +label_smoothing +learning_rate +accuracy +steps +seconds\n((?: .*\n){4})", output)
    [line] = [line for line in table[1].splitlines() if line.endswith("best")]
    assert line.split()[0] == str(best["number"])
    assert re.search(rf"^tuned  .*trial {best['number']} of 4$", output, re.MULTILINE)
    # The Trainer used exactly these values.
    rate = best["values"]["trainer.optimizer.learning_rate"]
    stored = json.loads((Path(results["model_run"]) / "declaration.json").read_text())
    assert stored["trainer"]["optimizer"]["learning_rate"] == rate
    assert results["training"]["eval_accuracy"] == pytest.approx(best["metrics"]["accuracy"], rel=1e-5)
    [report] = (workdir.path / "tuned" / "logs").glob("*/report.html")
    page = report.read_text()
    assert page.count("</tr>", page.index('id="trials"'), page.index("</table>", page.index('id="trials"'))) == 5
    assert "accuracy by learning_rate" in page


def test_a_second_run_is_cached_and_more_trials_continue(undisturbed):
    workdir, _, file = undisturbed
    before = trials(workdir)
    workdir.run(file)
    assert workdir.states("tuned")["Tuner"] == workdir.states("tuned")["Trainer"] == "cached"
    assert trials(workdir) == before
    output = workdir.run(file, "--set", "tune.max_trials=5")
    assert trials(workdir)[:4] == before
    assert len(trials(workdir)) == 5
    assert "trial 5/5" in output


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_an_interrupted_tuning_ends_with_the_same_results(undisturbed, tmp_path, by):
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


@pytest.mark.parametrize(("strategy", "path"), [("bayesian", "keras"), ("hyperband", "estimator")])
def test_two_trials_at_a_time_have_the_same_results_after_a_kill(tmp_path, strategy, path):
    once, again = Workdir(tmp_path / "once"), Workdir(tmp_path / "again")
    file = declare(tmp_path, path, strategy, parallel=2)
    # Three trials of 27 steps, the best of which continues to 80; and two of 80.
    changed = ("--set", "tune.hyperband.min_steps=26") if strategy == "hyperband" else ()
    count = 6 if strategy == "hyperband" else 7
    changed = (*changed, "--set", f"tune.max_trials={count}")
    once.run(file, *changed, seconds=500)
    end_in_trial(again, file, 3, signal.SIGKILL, *changed)
    again.run(file, *changed, seconds=500)
    assert trials(again) == trials(once)
    assert len(trials(once)) == count
    if strategy == "hyperband":
        assert [each["steps"] for each in trials(once)] == [27, 27, 27, 80, 80, 80]
        assert sum(bool(each["parent"]) for each in trials(once)) == 1


def test_a_module_file_has_its_own_hyperparameters(workdir, tmp_path):
    folder = copy_example("module-file", tmp_path)
    module, begin = folder / "my_trainer.py", "def trainer_fn(fn_args, schema):\n"
    edit(module, begin, f"{begin}    global RATE\n    RATE = fn_args.hyperparameters['values']['rate']\n")
    edit(module, "AdamOptimizer(0.01)", "AdamOptimizer(RATE)")
    changed = ("tune.objective=loss", "tune.max_trials=2", "tune.ranges.rate=[0.0001, 0.02]")
    arguments = [part for each in changed for part in ("--set", each)]
    output = workdir.run(str(folder / "module-file.yaml"), *arguments, dry_run=True)
    results = workdir.summary("module-file")
    assert results["tuning"]["best"] == next(
        each["number"] for each in results["tuning"]["trials"] if each["values"] == {"rate": 0.02}
    )
    assert "tuned         rate 0.02: loss " in output
    best = min(each["score"] for each in results["tuning"]["trials"])
    assert results["training"]["eval_loss"] == pytest.approx(best, rel=1e-5)


def test_a_users_own_pipeline_tunes_its_own_hyperparameters(tmp_path):
    folder = copy_example("canned-estimator-csv", tmp_path)
    pipeline, module = folder / "run_pipeline.py", folder / "cancer_canned.py"
    edit(module, "dnn_hidden_units=[16, 8]", 'dnn_hidden_units=[fn_args.hyperparameters["values"]["units"], 8]')
    edit(pipeline, "import Trainer", "import Trainer, Tuner")
    given = pipeline.read_text().partition("trainer = Trainer(\n")[2].partition("        train_args=")[0]
    tuner = f"""tuner = Tuner(
{given}        train_args=trainer_pb2.TrainArgs(num_steps=60),
        eval_args=trainer_pb2.EvalArgs(),
        tune={{"objective": "accuracy", "max_trials": 2, "parallel_trials": 2, "ranges": {{"units": [1, 16]}}}},
    )
    trainer = Trainer(
        hyperparameters=tuner.outputs["best_hyperparameters"],
"""
    edit(pipeline, "trainer = Trainer(\n", tuner)
    edit(pipeline, "transform, trainer,", "transform, tuner, trainer,")
    run_python("run_pipeline.py", cwd=folder, timeout=500, code=0)
    [file] = folder.glob("runs/artifacts/Tuner/tuner_results/*/trials.json")
    tuning = json.loads(file.read_text())
    assert sorted(each["values"]["units"] for each in tuning["trials"]) == [1, 16]
    assert [each["status"] for each in tuning["trials"]] == ["completed"] * 2
    best = next(each["values"]["units"] for each in tuning["trials"] if each["number"] == tuning["best"])
    (pushed,) = (folder / "runs" / "serving").iterdir()
    shapes = dict(tf.train.list_variables(str(pushed / "variables" / "variables")))
    assert shapes["dnn/hiddenlayer_0/kernel"][1] == best
