"""Measures the memory of steps with a large batch: `python -m tests.equivalence.measure_memory FILE PATH PARTS`."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import tensorflow as tf

from tfx_estimator import bring_back_estimator
from tfx_estimator.model_fn.networks import cifar_cnn
from tfx_estimator.model_fn.optim.optimizer import DeclaredOptimizer
from tfx_estimator.model_fn.step.classifier import make_model_fn
from tfx_estimator.model_fn.step.keras_classifier import KerasClassifier
from tfx_estimator.pipeline.config.trainer import TrainerSection

BATCH, STEPS = 4096, 3


def peak() -> float:
    """Returns this process's peak memory in MB: proc_pid_status(5)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def batches(batch: int) -> tf.data.Dataset:
    """Returns noise in CIFAR-10's shape, made on reading, because each copy of a graph contains its constants."""

    def make(step: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        images = tf.random.stateless_normal([batch, 32, 32, 3], tf.stack([step, 7]))
        return {"image": images}, tf.range(batch, dtype=tf.int64) % 10

    return tf.data.Dataset.range(STEPS).map(make)


def with_estimator(batch: int, parts: int) -> None:
    """Trains by the built-in model_fn."""
    optimizer = {"name": "sgd"}
    params = {"num_classes": 10, "train_steps": STEPS, "global_batch_size": batch, "seed": 3, "optimizer": optimizer}
    params["gradient_accumulation"] = parts
    with tempfile.TemporaryDirectory() as folder:
        bring_back_estimator()
        estimator = tf.estimator.Estimator(make_model_fn(cifar_cnn), folder, params=params)
        estimator.train(lambda: batches(batch), max_steps=STEPS)


def with_keras(batch: int, parts: int) -> None:
    """Trains by the step of the Keras paths."""
    section = TrainerSection(train_steps=STEPS, global_batch_size=batch, gradient_accumulation=parts)
    model = cifar_cnn(10)
    model.build((None, 32, 32, 3))
    classifier = KerasClassifier(model, section)
    classifier.compile(optimizer=DeclaredOptimizer(section.optimizer, STEPS))
    classifier.fit(batches(batch), steps_per_epoch=STEPS, verbose=0)


def main(file: str, path: str, parts: str) -> None:
    """Trains, and saves the growth of the peak over that of a small batch, in MB."""
    tf.get_logger().setLevel("ERROR")
    train = with_estimator if path == "estimator" else with_keras
    list(batches(BATCH).take(2))
    train(16, 1)
    before = peak()
    train(BATCH, int(parts))
    Path(file).write_text(json.dumps(peak() - before))


if __name__ == "__main__":
    main(*sys.argv[1:])
