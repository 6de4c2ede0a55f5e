"""What docs/estimator.md says of the way out of an Estimator, run as it stands there."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import PAGES

pytestmark = pytest.mark.e2e
PAGE = next(each for each in PAGES if each.name == "docs/estimator.md")
TRAIN = """
import tensorflow as tf


def model_fn(features, labels, mode):
    logits = tf.compat.v1.layers.dense(features["x"], 2)
    if mode == "infer":
        return tf.estimator.EstimatorSpec(mode, {"class": tf.argmax(logits, 1)})
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    step = tf.compat.v1.train.get_global_step()
    train_op = tf.compat.v1.train.AdamOptimizer(0.1).minimize(loss, step) if mode == "train" else None
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn():
    return tf.data.Dataset.from_tensor_slices(({"x": [[0.1], [0.7], [0.4], [0.9]]}, [0, 1, 0, 1])).batch(4).repeat(30)


def made():
    return tf.estimator.Estimator(model_fn, "model_dir"), input_fn, input_fn
"""
DEVICES = """
import tensorflow as tf
from converted import network

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
"""
FIT = """
data = tf.data.Dataset.from_tensor_slices(({"x": [[0.1], [0.7], [0.4], [0.9]]}, [0, 1, 0, 1])).batch(4)
model.fit(data.repeat(10), verbose=0)
print(int(model.get_weights()[0]))
"""


def test_the_page_leaves_an_estimator(
    tf: Any, processes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    from tfx_estimator.__main__ import main

    # Before the verb sets a folder for temporary files.
    process = processes("0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "train.py").write_text(TRAIN)
    import train  # type: ignore[import-not-found]

    estimator, input_fn, _ = train.made()
    estimator.train(input_fn, steps=5)
    (command,) = (line for block in PAGE.of("sh") for line in block.text.splitlines() if "convert" in line)
    assert main(shlex.split(command)[1:]) == 0
    assert "20 more steps" in capfd.readouterr().out
    assert json.loads(Path("converted/proof.json").read_text())["step"] == 5
    blocks = [each.text for each in PAGE.of("python")]
    (tmp_path / "go_on.py").write_text(next(each for each in blocks if each.startswith("# go_on.py")))
    process.run(str(tmp_path / "go_on.py"))
    assert (tmp_path / "training.keras").exists()
    strategy = next(each for each in blocks if "MirroredStrategy" in each)
    (tmp_path / "replicas.py").write_text(DEVICES + strategy + FIT)
    assert process.run(str(tmp_path / "replicas.py")) == "15"
