"""What a task measures between two steps."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from components.trainer.cluster.orders import CHIEF, EVALUATOR, PS, WORKER, Orders
from components.trainer.measure_hook import MEASURE, TaskMeasurement, Window, measured

pytestmark = pytest.mark.unit


def model_fn(features: tf.Tensor, labels: Any, mode: str) -> tf.estimator.EstimatorSpec:
    """Adds up what it is fed."""
    total = tf.compat.v1.get_variable("total", [], tf.int64, tf.compat.v1.zeros_initializer(), trainable=False)
    step = tf.compat.v1.train.get_or_create_global_step().assign_add(1)
    train_op = tf.group(total.assign_add(tf.reduce_sum(features)), step)
    return tf.estimator.EstimatorSpec(mode, loss=tf.constant(0.0), train_op=train_op)


def batches(params: dict[str, Any], mode: str) -> tf.data.Dataset:
    """0, 1, 2, …: each step another batch."""
    assert mode == tf.estimator.ModeKeys.TRAIN
    return tf.data.Dataset.range(params["batch_size"] * 1000).batch(params["batch_size"])


def tensors() -> tuple[tf.Tensor, tf.Tensor]:
    """The input_fn of old code."""
    return tf.constant([1], tf.int64), tf.constant([1])


def train(input_fn: Any, folder: Path, task: str = CHIEF) -> int:
    """Trains for 40 steps as a task does, and returns the sum of all that the model was fed."""

    def with_params(features: tf.Tensor, labels: Any, mode: str, params: Any) -> tf.estimator.EstimatorSpec:
        return model_fn(features, labels, mode)

    estimator = tf.estimator.Estimator(with_params, str(folder / "model"), params={"batch_size": 2})
    spec = {"estimator": estimator, "train_spec": tf.estimator.TrainSpec(input_fn, max_steps=40)}
    train_spec = measured(spec, Orders(task, 0, 1))["train_spec"]
    estimator.train(train_spec.input_fn, max_steps=train_spec.max_steps, hooks=list(train_spec.hooks))
    return int(estimator.get_variable_value("total"))


def ask(monkeypatch: pytest.MonkeyPatch, folder: Path, **options: Any) -> Path:
    """Asks for a measurement of 25 steps after 10."""
    measurements = folder / "measured"
    measurements.mkdir()
    window = Window(str(measurements), warmup=10, steps=25, cores=(0,), **options)
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
    assert (folder / "begin").exists()
    assert (folder / "end").exists()


def test_a_constant_batch_takes_the_place_of_the_data_set(tmp_path, monkeypatch):
    folder = ask(monkeypatch, tmp_path, constant_input=True)
    assert train(batches, tmp_path) == 40 * sum(range(2))
    (found,) = TaskMeasurement.load_all(str(folder))
    assert found.constant_input


def test_an_input_fn_that_returns_tensors_is_left_alone_and_says_so(tmp_path, monkeypatch):
    folder = ask(monkeypatch, tmp_path, constant_input=True)
    assert train(tensors, tmp_path, task=WORKER) == 40
    (found,) = TaskMeasurement.load_all(str(folder))
    assert (found.task, found.constant_input) == ("worker-0", False)
    # The chief's alone is the parameter servers' clock.
    assert not (folder / "begin").exists()


def test_a_parameter_server_measures_between_the_chiefs_steps(tmp_path, monkeypatch):
    folder = ask(monkeypatch, tmp_path)
    spec: dict[str, Any] = {}
    assert measured(spec, Orders(PS, 1, 1)) is spec
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


def test_nothing_changes_unless_it_is_asked_for(tmp_path, monkeypatch):
    spec = {"train_spec": tf.estimator.TrainSpec(batches, max_steps=1)}
    assert measured(spec, Orders(CHIEF, 0, 1)) is spec
    ask(monkeypatch, tmp_path)
    assert measured(spec, Orders(EVALUATOR, 0, 1)) is spec
