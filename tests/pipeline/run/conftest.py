"""Fixtures for dry runs of a declaration on made-up examples, in real processes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.pipeline.runners.deployed import words

DECLARATION = """
name: tried
data: {dataset: digits, splits: {train: "train[:80%]", eval: "train[80%:]"}, shards: 2}
trainer: {TRAINER, train_epochs: 1, global_batch_size: 300}
"""
MODEL_FN = """
import os, sys, time
import tensorflow as tf


def model_fn(features, labels, mode, params):
    assert params["label_names"][3] == "3" and params["image_shape"] == (28, 28, 1)
    {line}
    logits = tf.compat.v1.layers.dense(tf.compat.v1.layers.flatten(features["image"]), params["num_classes"])
    head = tf.estimator.MultiClassHead(params["num_classes"])
    step = tf.compat.v1.train.get_global_step()
    minimize = lambda loss: tf.compat.v1.train.AdamOptimizer(0.01).minimize(loss, step)
    return head.create_estimator_spec(features, mode, logits, labels, train_op_fn=minimize)
"""


@pytest.fixture
def declare(tmp_path: Path, monkeypatch):
    """Writes a declaration and its modules; returns the declaration's path.

    `line` is inserted into the model_fn, `trainer` is the trainer section, `more` is appended to the declaration.
    """
    monkeypatch.chdir(tmp_path)
    # For the child processes too: nothing may be left in it.
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)

    def write(line: str = "pass", trainer: str = 'model: "mine:model_fn"', more: str = "", **files: str) -> str:
        (tmp_path / "mine.py").write_text(MODEL_FN.format(line=line))
        (tmp_path / "tried.yaml").write_text(DECLARATION.replace("TRAINER", trainer) + more)
        for name, content in files.items():
            (tmp_path / f"{name}.py").write_text(content)
        return str(tmp_path / "tried.yaml")

    yield write
    assert not os.listdir(tmp_path / "temporary")


@pytest.fixture
def deep(declare, cli):
    """Runs `validate --deep` on what `declare` writes; returns its captured output."""

    def run(code: int = 0, *options: str, **declared: str):
        return cli("validate", "--deep", declare(**declared), *words(*options), code=code)

    return run
