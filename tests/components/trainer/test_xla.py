"""`trainer.xla` and `precision: auto` in whole trainings: the same losses, and one verdict for all tasks and runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tfx.types import artifact_utils

from tests.equivalence.conftest import largest_difference, read_weights
from tests.root import ROOT
from tests.waiting import wait_until
from tfx_estimator.components.trainer.speed_trial import verdict
from tfx_estimator.components.trainer.speed_trial.verdict import Verdict, Way

pytestmark = [pytest.mark.long, pytest.mark.equivalence, pytest.mark.timeout(400)]

WAYS = [Way(precision, xla) for precision in ("float32", "mixed_bfloat16") for xla in (False, True)]
OTHER_PRECISION = dict(zip(WAYS, [*WAYS[2:], *WAYS[:2]]))
PATHS = ("estimator", "keras", "keras_custom_loop")
ONE = {}
NAMED = {"strategy": "one_device", "devices": {"cpu": 1}}
MIRRORED = {"strategy": "mirrored", "devices": {"cpu": 2}}
WORKERS = {"strategy": "multi_worker_mirrored", "workers": 2}
SERVERS = {"strategy": "parameter_server", "workers": 2, "ps": 1}
# Not of Adam, whose division makes much of a rounding.
SGD = {"name": "momentum", "learning_rate": 0.01, "warmup_steps": 5}


def _losses(run):
    """Of the training, by step, and of the evaluation at the end."""
    import tensorflow as tf

    found = {}
    for file in tf.io.gfile.glob(f"{run.uri}/events.out.tfevents.*"):
        for event in tf.compat.v1.train.summary_iterator(file):
            for value in event.summary.value:
                if value.tag == "loss":
                    found[event.step] = value.simple_value
    assert len(found) > 3
    return {**found, "evaluation": run.get_float_custom_property("eval_average_loss")}


def _train(training, settings, path, strategy, **values):
    distribution = {"distribution": {"train": strategy}} if strategy else {}
    values = {"path": path, "train_steps": 30, "log_every_steps": 5, "optimizer": SGD, **distribution, **values}
    _, run = training.run(settings(values, path=path), steps=30)
    assert run.get_float_custom_property("last_step") == 30
    return run


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("strategy", [ONE, NAMED, MIRRORED, WORKERS], ids=["one", "named", "mirrored", "workers"])
def test_losses_are_those_of_the_step_that_is_not_compiled(training, settings, path, strategy):
    plain, compiled = (_losses(_train(training, settings, path, strategy, xla=xla)) for xla in (False, True))
    assert compiled == pytest.approx(plain, abs=1e-5)


@pytest.mark.parametrize("path", PATHS)
def test_auto_is_decided_before_training(training, settings, path):
    run = _train(training, settings, path, ONE, xla="auto")
    decided = run.get_string_custom_property("decided")
    assert decided.startswith(("xla true, after a trial: float32 ", "xla false, after a trial: float32 "))
    assert "float32 with XLA" in decided


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_what_was_decided_is_what_is_trained(training, settings, path, way):
    """The verdict is laid into the folder of the training, as a trial leaves it: no trial is made then."""
    values = {"path": path, "model": "mnist_cnn", "train_steps": 30, "log_every_steps": 5}
    values |= {"optimizer": SGD, "save_checkpoints_steps": 30}
    auto = settings({**values, "xla": "auto", "precision": "auto"}, path=path)
    os.makedirs(folder := training.folder(auto, 30))
    verdict.write(folder, Verdict(way, "as it was laid there"))
    runs = {"auto": training.run(auto, steps=30)[1]}
    assert runs["auto"].get_string_custom_property("decided") == "as it was laid there"
    for name, declared in (("by hand", way), ("otherwise", OTHER_PRECISION[way])):
        by_hand = settings({**values, "xla": declared.xla, "precision": declared.precision}, path=path)
        runs[name] = training.run(by_hand, steps=30)[1]
    losses = {name: _losses(run) for name, run in runs.items()}
    weights = {name: read_weights(run.uri) for name, run in runs.items()}
    assert losses["auto"] == pytest.approx(losses["by hand"], abs=1e-5)
    assert largest_difference(weights["auto"], weights["by hand"]) < 1e-5
    # Rounded to 8 bits, in one of the two.
    assert largest_difference(weights["auto"], weights["otherwise"]) > 1e-4
    for run in runs.values():
        (log,) = _logs(Path(run.uri), "chief-0")
        assert ("Compiled cluster using XLA" in log.read_text()) == way.xla
        assert not _logs(Path(run.uri), "speed_trial-0")


def _logs(folder, name):
    return sorted(folder.rglob(f"logs/{name}.attempt-*.log"))


@pytest.mark.parametrize("path", PATHS)
def test_two_processes_get_one_verdict_which_a_restart_keeps(training, settings, digits, path):
    """The first run is killed in the midst of its training."""
    auto = {"xla": "auto", "precision": "auto"}
    made = settings({"path": path, **auto, "train_steps": 3000, "distribution": {"train": WORKERS}}, path=path)
    job = training.root.parent / "job.json"
    inputs = artifact_utils.jsonify_artifact_dict(digits)
    values = {"root": str(training.root), "inputs": inputs, "settings": made.to_dict(), "executions": 0}
    job.write_text(json.dumps(values))
    command = [sys.executable, "-m", "tests.faults.train", str(job)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as first:

        def is_under_way() -> bool:
            assert first.poll() is None, "the run to kill has ended"
            return any(training.root.glob("training/*/model.ckpt-2*.index"))

        wait_until(is_under_way, "a checkpoint of a step from 200 on", 200, every=0.1)
        first.send_signal(signal.SIGKILL)
    (kept,) = training.root.glob("training/*/speed_trial.json")
    before = kept.read_text()
    assert len(_logs(kept.parent, "speed_trial-0")) == 1
    training.executions = 1
    _, run = training.run(made, steps=3000)
    folder = next(training.root.glob("model_run/*"))
    assert (folder / "speed_trial.json").read_text() == before
    assert len(_logs(folder, "speed_trial-0")) == 1
    assert run.get_float_custom_property("first_step") > 0
    found = json.loads(before)
    assert run.get_string_custom_property("decided") == found["text"]
    assert set(found["measured"]) <= {
        f"{precision}{way}" for precision in ("float32", "mixed_bfloat16") for way in ("", " with XLA")
    }
    assert "float32" in found["measured"]
    # What each task was told.
    told = json.loads((folder / "logs" / "job.json").read_text())["settings"]["declaration"]["trainer"]
    assert {name: told[name] for name in ("precision", "xla")} == found["way"]


@pytest.mark.parametrize("path", PATHS[1:])
def test_precision_is_decided_with_parameter_servers(training, settings, path):
    run = _train(training, settings, path, SERVERS, precision="auto")
    assert "mixed_bfloat16" in run.get_string_custom_property("decided")


@pytest.mark.parametrize("strategy", [MIRRORED, WORKERS], ids=["mirrored", "workers"])
@pytest.mark.parametrize("path", PATHS)
def test_what_xla_cannot_compile_is_left_out(training, settings, path, strategy):
    """Its batch normalisation adds up over the replicas, also where the trial, of one worker, has a single one."""
    values = {"path": path, "model": "cifar_resnet9", "params": {"synchronized": True}, "xla": "auto"}
    values |= {"train_steps": 2, "global_batch_size": 4, "distribution": {"train": strategy}}
    _, run = training.run(settings(values, path=path), steps=2)
    decided = run.get_string_custom_property("decided")
    assert decided.startswith("xla false, after a trial: float32 ")
    assert "float32 with XLA left out: trainer.xla: the network has a layer that adds up over all replicas" in decided
    assert run.get_float_custom_property("last_step") == 2
