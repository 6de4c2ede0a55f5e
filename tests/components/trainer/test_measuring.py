"""A task's measurement between two steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tfx_estimator.components.trainer.estimator.hooks import measured
from tfx_estimator.components.trainer.measuring import Meter
from tfx_estimator.components.trainer.protocol.measurement import MEASURE, TaskMeasurement, Window
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, EVALUATOR, PS, WORKER, TaskSpec


def model_fn(features: tf.Tensor, labels: Any, mode: str) -> tf.estimator.EstimatorSpec:
    """Adds up its inputs."""
    features = tf.cast(features, tf.int64)
    total = tf.compat.v1.get_variable("total", [], tf.int64, tf.compat.v1.zeros_initializer(), trainable=False)
    step = tf.compat.v1.train.get_or_create_global_step().assign_add(1)
    train_op = tf.group(total.assign_add(tf.reduce_sum(features)), step)
    return tf.estimator.EstimatorSpec(mode, loss=tf.constant(0.0), train_op=train_op)


def batches(params: dict[str, Any], mode: str) -> tf.data.Dataset:
    """Batches of 0, 1, 2, …, different in each step."""
    assert mode == tf.estimator.ModeKeys.TRAIN
    return tf.data.Dataset.range(params["batch_size"] * 1000).batch(params["batch_size"])


def tensors() -> tuple[tf.Tensor, tf.Tensor]:
    """An input_fn that returns tensors, as in old code."""
    return tf.constant([1], tf.int64), tf.constant([1])


def growing() -> tf.data.Dataset:
    """The batch of step n has n examples; the graph knows no size."""
    return tf.data.Dataset.range(1, 100).map(lambda size: tf.range(size))


def weighted() -> tf.data.Dataset:
    """Batches with an additional tensor that belongs to no example."""
    weights, numbers = tf.data.Dataset.from_tensors(tf.ones([10])).repeat(), tf.data.Dataset.range(1000).batch(4)
    return tf.data.Dataset.zip(({"weights": weights, "x": numbers}, numbers))


def train(input_fn: Any, folder: Path, task: str = CHIEF, hooks: Sequence[Any] = ()) -> int:
    """Trains for 40 steps as a task does; returns the sum of the model's inputs."""

    def with_params(features: Any, labels: Any, mode: str, params: Any) -> tf.estimator.EstimatorSpec:
        return model_fn(features["x"] if isinstance(features, dict) else features, labels, mode)

    config = tf.estimator.RunConfig(str(folder / "model"), save_checkpoints_steps=3, keep_checkpoint_max=100)
    estimator = tf.estimator.Estimator(with_params, config=config, params={"batch_size": 2})
    spec = {"estimator": estimator, "train_spec": tf.estimator.TrainSpec(input_fn, max_steps=40, hooks=hooks)}
    spec = measured(spec, TaskSpec(task, 0, 1))
    train_spec, estimator = spec["train_spec"], spec["estimator"]
    estimator.train(train_spec.input_fn, max_steps=train_spec.max_steps, hooks=list(train_spec.hooks))
    return int(estimator.get_variable_value("total"))


def ask(monkeypatch: pytest.MonkeyPatch, folder: Path, **options: Any) -> Path:
    """Requests a measurement of 25 steps after 10, or as the options say."""
    measurements = folder / "measured"
    measurements.mkdir()
    window = Window(str(measurements), **{"warmup": 10, "steps": 25, "cores": (0,), **options})
    monkeypatch.setenv(MEASURE, window.to_environment())
    return measurements


def test_a_task_measures_the_window_and_trains_to_the_end(tmp_path, monkeypatch):
    folder = ask(monkeypatch, tmp_path)
    before, cpu = time.monotonic(), time.process_time()
    assert train(batches, tmp_path) == sum(range(80))
    (found,) = TaskMeasurement.load_all(str(folder))
    assert (found.task, found.steps, found.constant_input) == ("chief-0", 25, False)
    assert 0 < found.wall < time.monotonic() - before
    assert 0 < found.cpu < time.process_time() - cpu
    assert 100 << 20 < found.pss <= found.peak_rss
    assert found.examples == 25 * 2
    assert (folder / "begin").exists()
    assert (folder / "end").exists()
    # No checkpoint is written during the measurement, whatever the RunConfig says.
    saved = tf.train.get_checkpoint_state(str(tmp_path / "model")).all_model_checkpoint_paths
    assert [path.rpartition("-")[2] for path in saved] == ["0", "40"]


@pytest.mark.parametrize(
    ("input_fn", "examples"),
    [
        (lambda: batches({"batch_size": 8}, "train").unbatch().batch(3, drop_remainder=True), 25 * 3),
        (tensors, 25 * 1),
        # The window lasts from the end of step 11 to the end of step 36.
        (growing, sum(range(12, 37))),
        (weighted, 25 * 4),
    ],
    ids=["fixed", "tensors", "growing", "weighted"],
)
def test_the_models_actual_examples_are_counted(tmp_path, monkeypatch, input_fn, examples):
    folder = ask(monkeypatch, tmp_path)
    train(input_fn, tmp_path)
    (found,) = TaskMeasurement.load_all(str(folder))
    assert found.examples == examples


@pytest.mark.parametrize(("input_fn", "task", "constant"), [(batches, CHIEF, True), (tensors, WORKER, False)])
def test_a_constant_batch_replaces_a_data_set_and_no_tensors(tmp_path, monkeypatch, input_fn, task, constant):
    folder = ask(monkeypatch, tmp_path, constant_input=True)
    # The first batch is 0 and 1; the tensor is 1.
    assert train(input_fn, tmp_path, task) == 40
    (found,) = TaskMeasurement.load_all(str(folder))
    assert (found.task, found.constant_input) == (f"{task}-0", constant)
    # Only the chief's steps are the parameter servers' clock.
    assert (folder / "begin").exists() == (task == CHIEF)


def test_a_parameter_server_measures_between_the_chiefs_steps(tmp_path, monkeypatch):
    folder = ask(monkeypatch, tmp_path)
    spec: dict[str, Any] = {}
    assert measured(spec, TaskSpec(PS, 1, 1)) is spec
    for edge in ("begin", "end"):
        assert TaskMeasurement.load_all(str(folder)) == []
        (folder / edge).touch()
        time.sleep(0.2)
    for thread in threading.enumerate():
        if thread.name == "measure":
            thread.join(10)
    (found,) = TaskMeasurement.load_all(str(folder))
    assert (found.task, found.steps) == ("ps-1", 0)
    assert 0 < found.wall < 10
    assert 0 <= found.cpu < 10


def test_nothing_changes_without_a_request(tmp_path, monkeypatch):
    spec = {"train_spec": tf.estimator.TrainSpec(batches, max_steps=1)}
    assert measured(spec, TaskSpec(CHIEF, 0, 1)) is spec
    ask(monkeypatch, tmp_path)
    assert measured(spec, TaskSpec(EVALUATOR, 0, 1)) is spec


def test_the_window_starts_once_all_tasks_have_and_holds_whole_executions(tmp_path):
    window = Window(str(tmp_path), warmup=10, steps=50, cores=[0], trainers=2)
    chief = Meter(window, TaskSpec(CHIEF, 0, 1), examples_per_step=32)
    chief.begin(0)
    chief.after_step(20, {})
    chief.after_step(40, {})
    assert not (tmp_path / "begin").exists()
    Meter(window, TaskSpec(WORKER, 0, 1), examples_per_step=32).after_step(20, {})
    chief.after_step(60, {})
    chief.after_step(80, {})
    assert (tmp_path / "begin").exists()
    chief.after_step(120, {})
    assert not (tmp_path / "end").exists()
    chief.after_step(140, {})
    chief.after_step(160, {})
    (found,) = TaskMeasurement.load_all(str(tmp_path))
    assert (found.task, found.steps, found.own_steps, found.examples) == ("chief-0", 60, 60, 60 * 32)
    assert found.cpu >= 0
    assert found.peak_rss > found.pss > 0
    assert (tmp_path / "end").exists()
