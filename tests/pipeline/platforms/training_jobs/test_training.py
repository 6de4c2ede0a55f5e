"""Whole pipelines in TFJobs: real tasks of two workers, through a real API server."""

from __future__ import annotations

import glob
import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.folders import write_files
from tests.pipeline.platforms.training_jobs.cluster import in_pods
from tests.pipeline.platforms.training_jobs.operator import Operator
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


def steps_of(*files: object) -> list[int]:
    """Returns the reported steps, in order of time."""
    heard = [each for path in files for each in ProgressReader(str(path)).read() if each["event"] is Event.STEP]
    return [each["step"] for each in sorted(heard, key=lambda each: each["time"])]


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
    overrides_of_all = (f"deploy.pipeline_root={folder / 'work'}", *overrides)
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
