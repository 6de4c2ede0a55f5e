"""`tfx-estimator run` whose Trainer trains in a TFJob: real tasks of two workers, through a real API server."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.folders import write_files
from tests.pipeline.platforms.training_jobs.cluster import in_pods
from tests.pipeline.platforms.training_jobs.operator import Operator
from tests.pipeline.platforms.training_jobs.proxy import Proxy, between
from tests.pipeline.runners.deployed import IMAGE, words
from tests.waiting import wait_until
from tfx_estimator.__main__ import main
from tfx_estimator.components.trainer.protocol.events import Event, ProgressReader
from tfx_estimator.pipeline.platforms.training_jobs.api import Kube

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(900)]

STEPS = 400
_DATA = """\
name: digits-tfjob
data: {{dataset: digits, splits: {{train: "train[:80%]", eval: "train[80%:]"}}}}
"""
_DEPLOYED = """\
evaluator: {{min_accuracy: 0.8}}
deploy:
  image: {image}
  volumes: [{{claim: work, path: "{folder}"}}]
  tfjob: {{train: true}}
"""
_TRAINER = """\
trainer:
  model: "{model}"
  train_steps: {steps}
  global_batch_size: 64
  save_checkpoints_steps: 50
  distribution: {{train: {{strategy: multi_worker_mirrored, workers: 2, timeout_seconds: 20}}}}
"""
DECLARATION = f"{_DATA}{_TRAINER}{_DEPLOYED}"
# A user's module that is not in the image; slow enough to be interrupted.
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


# In the style of TensorFlow's multi-worker guide, for TFX; independent of this project.
RUN_FN = """\
import os
import re

import shapes_of_mine
import tensorflow as tf
import tensorflow_transform as tft

STEPS_AN_EPOCH = 20


def run_fn(fn_args):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    graph = tft.TFTransformOutput(fn_args.transform_output)
    spec = graph.raw_feature_spec()

    def parse(serialized):
        features = graph.transform_raw_features(tf.io.parse_example(serialized, spec))
        return features["image"], tf.reshape(features["label"], [-1])

    def data(patterns):
        return tf.data.TFRecordDataset(tf.io.gfile.glob(patterns)).batch(64).map(parse)

    layers = tf.keras.layers
    with strategy.scope():
        hidden = layers.Dense(shapes_of_mine.WIDTH, "relu")
        model = tf.keras.Sequential([layers.Flatten(), hidden, layers.Dense(10, "softmax")])
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(
        data(fn_args.train_files).shuffle(40).repeat(),
        epochs=fn_args.train_steps // STEPS_AN_EPOCH,
        steps_per_epoch=STEPS_AN_EPOCH,
        callbacks=[tf.keras.callbacks.BackupAndRestore(os.path.join(fn_args.model_run_dir, "backup"))],
        verbose=2,
    )
    model.transform = graph.transform_features_layer()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "examples")])
    def serve(examples):
        raw = tf.io.parse_example(examples, {"image": spec["image"]})
        return {"probabilities": model(model.transform(raw)["image"])}

    model.save(fn_args.serving_model_dir, save_format="tf", signatures={"serving_default": serve})
"""
_RUNS = """\
trainer:
  module_file: own/trains_of_mine.py
  train_steps: {steps}
  distribution: {{train: {{strategy: multi_worker_mirrored, workers: 2}}}}
"""
RUN_FN_DECLARATION = f"{_DATA}{_RUNS}{_DEPLOYED}"
MODULES = {
    "networks_of_mine.py": NETWORK,
    # TFX's own wheel of the module file would not contain it.
    "shapes_of_mine.py": "WIDTH = 32\n",
    "own/trains_of_mine.py": RUN_FN,
}


def write_project(folder: Path, declaration: str) -> Path:
    """Writes a user's project, whose modules are not in the image."""
    return write_files(folder, {**MODULES, "mine.yaml": declaration})


class Run:
    """A run of the command line.

    Args:
        folder: For the declaration, the modules and the work folder.
        kubeconfig: Of the API server.
        declaration: A template with fields for the model, the steps, the image and the work folder.
        model: A function of the user's module.
    """

    def __init__(
        self, folder: Path, kubeconfig: Path, declaration: str = DECLARATION, model: str = "networks_of_mine:small"
    ) -> None:
        self.folder, self.work = folder, folder / "work"
        self.work.mkdir(exist_ok=True)
        text = declaration.format(model=model, steps=STEPS, image=IMAGE, folder=self.work)
        home = write_project(folder / "project", text)
        command = [sys.executable, "-m", "tfx_estimator", "run", "mine.yaml", "--workdir", str(self.work)]
        command += ["--json", "--no-report", "--no-dry-run"]
        env = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        with (folder / "stderr").open("wb") as file:
            self.process = subprocess.Popen(command, cwd=home, stdout=subprocess.PIPE, stderr=file, text=True, env=env)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()

    def summary(self) -> dict:
        text, _ = self.process.communicate(timeout=600)
        return json.loads(text)

    @property
    def stderr(self) -> str:
        """The output for people."""
        return (self.folder / "stderr").read_text()

    def step(self) -> int:
        logs = self.work.glob("digits-tfjob/artifacts/Trainer/training/*/logs/chief-0.*.progress.jsonl")
        return max(steps_of(*logs), default=-1)

    def until(self, done: Callable[[], bool], what: str) -> None:
        """Waits for a named condition while the run is alive."""

        def is_done() -> bool:
            if done():
                return True
            assert self.process.poll() is None, f"it has ended without {what}: {self.stderr}"
            return False

        wait_until(is_done, lambda: f"{what}: {self.stderr}", 300, every=0.1)


def steps_of(*files: object) -> list[int]:
    """Returns the reported steps, in order of time."""
    heard = [each for path in files for each in ProgressReader(str(path)).read() if each["event"] is Event.STEP]
    return [each["step"] for each in sorted(heard, key=lambda each: each["time"])]


def _check(results: dict, run: Run) -> None:
    assert run.process.returncode == 0, run.stderr
    training = results["training"]
    assert (training["first_step"], training["last_step"], training["extra_steps"]) == (0, STEPS, 0)
    assert training["examples_per_second"] > 0
    assert results["accuracy"] > 0.8
    assert (Path(results["pushed"]) / "saved_model.pb").exists()
    assert "Traceback" not in run.stderr


def test_a_killed_worker_a_cut_watch_and_a_restarted_server(fresh_server, tmp_path, monkeypatch):
    server = fresh_server
    with (
        between(server, Proxy, tmp_path, monkeypatch) as proxy,
        Operator(server, tmp_path / "pods") as operator,
        Run(tmp_path, tmp_path / "kubeconfig") as run,
    ):
        run.until(lambda: run.step() >= 60, "step 60")
        assert proxy.cut() >= 2
        operator.kill("worker", 0)
        run.until(lambda: len(operator.started) > 2, "a third pod")
        time.sleep(2)
        server.stop_server()
        time.sleep(3)
        server.start_server()
        results = run.summary()
    _check(results, run)
    training = results["training"]
    assert training["restarts"] == 1
    (restart,) = results["restarts"]
    died_at = re.match(r"worker-0 was killed by SIGKILL at step (\d+); ", restart)
    # From a checkpoint of the first chief, whose last report may be of the same step.
    first, second = map(steps_of, sorted(run.work.glob("**/model_run/*/logs/chief-0.*.progress.jsonl")))
    assert second[0] % 50 == 0 < second[0] <= max(first) == int(died_at[1])
    assert training["lost_steps"] == max(first) - second[0]
    names = [path.name for path in Path(run.work).glob("**/model_run/*/logs/pods/*.log")]
    assert len([name for name in names if "chief-0" in name]) == 2


def test_a_stopped_run_resumes_and_a_rerun_after_a_kill_adopts_the_job(server, tmp_path):
    with Operator(server, tmp_path / "pods") as operator:
        with Run(tmp_path, server.kubeconfig) as run:
            run.until(lambda: run.step() >= 60, "step 60")
            run.process.send_signal(signal.SIGTERM)
            run.process.communicate(timeout=200)
        assert run.process.returncode == 143
        assert "is deleted; the last checkpoint is of step" in run.stderr
        assert not Kube().jobs()["items"]
        with Run(tmp_path, server.kubeconfig) as run:
            before = run.step()
            run.until(lambda: run.step() > before, f"a step after {before}")
        # Leaving the context killed the run.
        started = len(operator.started)
        with Run(tmp_path, server.kubeconfig) as run:
            results = run.summary()
    assert run.process.returncode == 0, run.stderr
    assert len(operator.started) == started
    assert results["training"]["first_step"] >= 50
    assert results["training"]["last_step"] == STEPS


def test_a_chief_that_is_killed_when_its_workers_are_done(server, tmp_path):
    with Operator(server, tmp_path / "pods") as operator, Run(tmp_path, server.kubeconfig) as run:
        logs = f"{run.work}/digits-tfjob/artifacts/Trainer/training/*/logs/"
        exports = "an exporter, and the end of the worker"
        run.until(lambda: bool(glob.glob(f"{logs}/exporter-0.*")) and operator.has_ended("worker", 0), exports)
        operator.kill("chief", 0)
        began = time.monotonic()
        results = run.summary()
    _check(results, run)
    assert results["training"]["restarts"] == 1
    # It does not wait for them.
    assert time.monotonic() - began < 200


def test_the_users_error_is_on_the_terminal(server, tmp_path):
    broken = Run(tmp_path, server.kubeconfig, model="networks_of_mine:broken")
    with Operator(server, tmp_path / "pods"), broken as run:
        results = run.summary()
    assert run.process.returncode in (4, 5)
    assert "no such layer in my network" in run.stderr
    assert "networks_of_mine.py" in run.stderr
    assert "Traceback" not in run.stderr
    assert results["exit_code"] == run.process.returncode


def test_a_run_fn_of_the_users_is_trained_in_the_pods_and_its_model_pushed(server, tmp_path):
    with Operator(server, tmp_path / "pods") as operator, Run(tmp_path, server.kubeconfig, RUN_FN_DECLARATION) as run:
        results = run.summary()
    assert run.process.returncode == 0, run.stderr
    assert len(operator.started) == 2
    _check_run_fn(results, run.work)
    assert "Traceback" not in run.stderr


def _check_run_fn(results: dict, work: Path) -> None:
    assert results["accuracy"] > 0.8
    assert results["blessed"] is True
    assert results["restarts"] == []
    assert (Path(results["pushed"]) / "saved_model.pb").exists()
    # Keras logs all epochs in both tasks.
    for task in ("chief-0", "worker-0"):
        (log,) = work.glob(f"digits-tfjob/artifacts/Trainer/model_run/*/logs/{task}.attempt-*.log")
        assert f"Epoch {STEPS // 20}/{STEPS // 20}" in log.read_text()


def compiled(folder: Path, declaration: str, target: str, *overrides: str) -> tuple[list[dict], list[str]]:
    """Compiles for pods that see the work folder.

    Returns:
        The objects and the pods' command; the ConfigMap is mounted, and the project is deleted.
    """
    (folder / "work").mkdir(exist_ok=True)
    project = write_project(folder / "project", declaration)
    overrides_of_all = (f"deploy.pipeline_root={folder / 'work'}", f"deploy.{target}.train=false", *overrides)
    command = ["compile", str(project / "mine.yaml"), "--target", target, "--output", str(folder / "out.yaml")]
    assert main([*command, *words(*overrides_of_all)]) == 0
    shutil.rmtree(project)
    config_map, *objects = yaml.safe_load_all((folder / "out.yaml").read_text())
    return objects, in_pods(config_map, objects[0], folder / "etc")


def summary_of(folder: Path) -> dict:
    """Returns the summary of the last run of a compiled pipeline."""
    return json.loads(sorted(folder.glob("work/digits-tfjob/logs/*/summary.json"))[-1].read_text())


def _run_compiled(operator: Operator, job: dict, folder: Path, look: Callable[[], None] = lambda: None) -> dict:
    """Runs a TFJob to its end by an operator; returns the chief's summary."""
    Kube().create(job)

    def logs() -> list[str]:
        return [path.read_text() for path in (folder / "pods").glob("*.log")]

    def has_succeeded() -> bool:
        there = Kube().read(job["metadata"]["name"])
        conditions = {each["type"] for each in there.get("status", {}).get("conditions", ())}
        assert "Failed" not in conditions, logs()
        if "Succeeded" not in conditions:
            look()
        return "Succeeded" in conditions

    wait_until(has_succeeded, lambda: f"the TFJob's success: {logs()}", 600, every=0.5)
    return summary_of(folder)


def test_the_compiled_tfjob_runs_the_pipeline_in_its_pods(server, tmp_path):
    text = DECLARATION.format(model="mnist_cnn", steps=100, image=IMAGE, folder=tmp_path / "work")
    # So few steps make no good model.
    (job,), argv = compiled(tmp_path, text, "tfjob", "evaluator.min_accuracy=0.2")
    killed = threading.Event()
    with Operator(server, tmp_path / "pods", lambda *_: argv) as operator:

        def kill_once_it_trains() -> None:
            files = glob.glob(f"{tmp_path}/work/*/artifacts/Trainer/training/*/logs/chief-0.*.progress.jsonl")
            if not killed.is_set() and any('"step"' in Path(file).read_text() for file in files):
                operator.kill("worker", 0)
                killed.set()

        summary = _run_compiled(operator, job, tmp_path, kill_once_it_trains)
        assert len(operator.started) == 4
    assert summary["training"]["last_step"] == 100
    assert (Path(summary["pushed"]) / "saved_model.pb").exists()


def test_the_compiled_tfjob_trains_with_a_run_fn_from_its_config_map(server, tmp_path):
    text = RUN_FN_DECLARATION.format(steps=STEPS, image=IMAGE, folder=tmp_path / "work")
    (job,), argv = compiled(tmp_path, text, "tfjob")
    with Operator(server, tmp_path / "pods", lambda *_: argv) as operator:
        summary = _run_compiled(operator, job, tmp_path)
        assert sorted(operator.started) == ["digits-tfjob-chief-0", "digits-tfjob-worker-0"]
    _check_run_fn(summary, tmp_path / "work")
