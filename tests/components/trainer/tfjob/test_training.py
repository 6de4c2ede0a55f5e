"""`tfx-estimator run` whose Trainer trains in a TFJob: real tasks of two workers, through a real API server."""

from __future__ import annotations

import glob
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.components.trainer.tfjob.operator import Operator
from tests.components.trainer.tfjob.proxy import Proxy
from tests.pipeline.runners.deployed import IMAGE
from tfx_estimator.components.trainer.protocol.events import Event, ProgressReader
from tfx_estimator.components.trainer.tfjob.api import Kube

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(900)]

STEPS = 400
DECLARATION = """\
name: digits-tfjob
data: {{dataset: digits, splits: {{train: "train[:80%]", eval: "train[80%:]"}}}}
trainer:
  model: "{model}"
  train_steps: {steps}
  global_batch_size: 64
  save_checkpoints_steps: 50
  distribution: {{train: {{strategy: multi_worker_mirrored, workers: 2, timeout_seconds: 20}}}}
evaluator: {{min_accuracy: 0.8}}
deploy:
  image: {image}
  volumes: [{{claim: work, path: "{folder}"}}]
  tfjob: {{train: true}}
"""
# A user's own, which is not in the image; it is slow enough to be interrupted.
NETWORK = """\
import shapes_of_mine
import tensorflow as tf


def small(num_classes):
    layers = tf.keras.layers
    hidden = layers.Dense(shapes_of_mine.WIDTH, "relu")
    return tf.keras.Sequential([layers.Flatten(), hidden, layers.Dense(num_classes)])


def broken(num_classes):
    raise ValueError("no such layer in my network")
"""


class Run:
    """A run of the command line.

    Args:
        folder: For the declaration, the modules and the work folder.
        model: A function of the user's module.
        kubeconfig: Of the API server.
    """

    def __init__(self, folder: Path, kubeconfig: Path, model: str = "networks_of_mine:small") -> None:
        self.folder, self.work = folder, folder / "work"
        self.work.mkdir(exist_ok=True)
        home = folder / "project"
        home.mkdir(exist_ok=True)
        (home / "networks_of_mine.py").write_text(NETWORK)
        (home / "shapes_of_mine.py").write_text("WIDTH = 32\n")
        text = DECLARATION.format(model=model, steps=STEPS, image=IMAGE, folder=self.work)
        (home / "mine.yaml").write_text(text)
        command = [sys.executable, "-m", "tfx_estimator", "run", "mine.yaml", "--workdir", str(self.work)]
        command += ["--json", "--no-report", "--no-dry-run"]
        with (folder / "stderr").open("wb") as said:
            self.process = subprocess.Popen(
                command,
                cwd=home,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            )

    def summary(self) -> dict:
        """Waits for its end; returns what it printed."""
        text, _ = self.process.communicate(timeout=600)
        return json.loads(text)

    @property
    def said(self) -> str:
        """What is for people."""
        return (self.folder / "stderr").read_text()

    def step(self) -> int:
        """The last step that the chief has reported."""
        steps = [-1]
        for path in glob.glob(f"{self.work}/digits-tfjob/artifacts/Trainer/training/*/logs/chief-0.*.progress.jsonl"):
            steps += [each["step"] for each in ProgressReader(path).read() if each["event"] is Event.STEP]
        return max(steps)

    def until(self, done: Callable[[], bool], seconds: float = 300.0) -> None:
        """Waits for something."""
        deadline = time.monotonic() + seconds
        while not done():
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.1)


def _check(results: dict, run: Run) -> None:
    assert run.process.returncode == 0, run.said
    training = results["training"]
    assert (training["first_step"], training["last_step"], training["extra_steps"]) == (0, STEPS, 0)
    assert training["examples_per_second"] > 0
    assert results["accuracy"] > 0.8
    assert (Path(results["pushed"]) / "saved_model.pb").exists()
    assert "Traceback" not in run.said


def test_a_killed_worker_a_cut_watch_and_a_restarted_server(fresh_server, tmp_path):
    server = fresh_server
    with Proxy(server.port) as proxy, Operator(server, tmp_path / "pods") as operator:
        (config := tmp_path / "kubeconfig").write_text(
            server.kubeconfig.read_text().replace(f":{server.port}", f":{proxy.port}")
        )
        run = Run(tmp_path, config)
        try:
            run.until(lambda: run.step() >= 60)
            assert proxy.cut() >= 2
            operator.kill("worker", 0)
            run.until(lambda: len(operator.started) > 2)
            time.sleep(2)
            server.stop_server()
            time.sleep(3)
            server.start_server()
            results = run.summary()
        finally:
            run.process.kill()
            run.process.wait()
    _check(results, run)
    training = results["training"]
    assert training["restarts"] == 1
    (restart,) = results["restarts"]
    assert restart.startswith("worker-0 was killed by SIGKILL at step ")
    assert training["lost_steps"] >= 1
    names = [path.name for path in Path(run.work).glob("**/model_run/*/logs/pods/*.log")]
    assert len([name for name in names if "chief-0" in name]) == 2


def test_a_stopped_run_goes_on_and_a_killed_one_adopts(server, tmp_path):
    with Operator(server, tmp_path / "pods") as operator:
        run = Run(tmp_path, server.kubeconfig)
        try:
            run.until(lambda: run.step() >= 60)
            run.process.send_signal(signal.SIGTERM)
            run.process.communicate(timeout=200)
        finally:
            run.process.kill()
            run.process.wait()
        assert run.process.returncode == 143
        assert "is deleted; the last checkpoint is of step" in run.said
        assert not Kube().jobs()["items"]
        run = Run(tmp_path, server.kubeconfig)
        try:
            before = run.step()
            run.until(lambda: run.step() > before)
            run.process.kill()
            run.process.wait()
            started = len(operator.started)
            run = Run(tmp_path, server.kubeconfig)
            results = run.summary()
        finally:
            run.process.kill()
            run.process.wait()
    assert run.process.returncode == 0, run.said
    assert len(operator.started) == started
    assert results["training"]["first_step"] >= 50
    assert results["training"]["last_step"] == STEPS


def test_a_chief_that_is_killed_when_its_workers_are_done(server, tmp_path):
    with Operator(server, tmp_path / "pods") as operator:
        run = Run(tmp_path, server.kubeconfig)
        try:
            logs = f"{run.work}/digits-tfjob/artifacts/Trainer/training/*/logs/"
            run.until(lambda: bool(glob.glob(f"{logs}/exporter-0.*")) and operator.has_ended("worker", 0))
            operator.kill("chief", 0)
            began = time.monotonic()
            results = run.summary()
        finally:
            run.process.kill()
            run.process.wait()
    _check(results, run)
    assert results["training"]["restarts"] == 1
    # It does not wait for them.
    assert time.monotonic() - began < 200


def test_the_users_error_is_on_the_terminal(server, tmp_path):
    with Operator(server, tmp_path / "pods"):
        run = Run(tmp_path, server.kubeconfig, "networks_of_mine:broken")
        try:
            results = run.summary()
        finally:
            run.process.kill()
            run.process.wait()
    assert run.process.returncode in (4, 5)
    assert "no such layer in my network" in run.said
    assert "networks_of_mine.py" in run.said
    assert "Traceback" not in run.said
    assert results["exit_code"] == run.process.returncode


def test_the_compiled_tfjob_runs_the_pipeline_in_its_pods(server, tmp_path):
    import yaml

    from tfx_estimator.__main__ import main

    (tmp_path / "work").mkdir()
    text = DECLARATION.format(model="mnist_cnn", steps=100, image=IMAGE, folder=tmp_path / "work")
    (tmp_path / "mine.yaml").write_text(text)
    command = ["compile", str(tmp_path / "mine.yaml"), "--target", "tfjob", "--output", str(tmp_path / "out.yaml")]
    command += ["--set", f"deploy.pipeline_root={tmp_path / 'work'}", "--set", "deploy.tfjob.train=false"]
    # Few steps are no good model.
    command += ["--set", "evaluator.min_accuracy=0.2"]
    assert main(command) == 0
    config_map, job = yaml.safe_load_all((tmp_path / "out.yaml").read_text())
    mounted = tmp_path / "etc"
    mounted.mkdir()
    for name, data in config_map["data"].items():
        (mounted / name).write_text(data)

    container = job["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]["containers"][0]
    argv = [each.replace("/etc/tfx-estimator", str(mounted)) for each in container["command"]]
    argv = [sys.executable, "-m", "tfx_estimator", *argv[1:]]
    killed = threading.Event()
    with Operator(server, tmp_path / "pods", lambda *_: argv) as operator:
        Kube().create(job)
        deadline = time.monotonic() + 600
        while True:
            assert time.monotonic() < deadline, [path.read_text() for path in (tmp_path / "pods").glob("*.log")]
            there = Kube().read(job["metadata"]["name"])
            conditions = {each["type"]: each for each in there.get("status", {}).get("conditions", ())}
            assert "Failed" not in conditions, [path.read_text() for path in (tmp_path / "pods").glob("*.log")]
            if "Succeeded" in conditions:
                break
            files = glob.glob(f"{tmp_path}/work/*/artifacts/Trainer/training/*/logs/chief-0.*.progress.jsonl")
            if not killed.is_set() and any('"step"' in Path(file).read_text() for file in files):
                operator.kill("worker", 0)
                killed.set()
            time.sleep(0.5)
        assert len(operator.started) == 4
    (summary,) = (
        each
        for path in sorted(tmp_path.glob("work/digits-tfjob/logs/*/summary.json"))[-1:]
        for each in [json.loads(path.read_text())]
    )
    assert summary["training"]["last_step"] == 100
    assert (Path(summary["pushed"]) / "saved_model.pb").exists()
