"""What runs again, and what does not: counted in ML Metadata over several runs."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

DECLARATION = """
name: own
data: {dataset: digits, splits: {train: "train[:80%]", eval: "train[80%:]"}, shards: 2}
transform: {preprocessing_fn: "own_preprocessing:preprocessing_fn"}
trainer: {model: "own_model:network", train_steps: 60, global_batch_size: 64}
evaluator: {min_accuracy: 0.5, max_accuracy_drop: null}
"""
MODEL = """
import tensorflow as tf
from own_layers import hidden

def network(num_classes):
    layers = tf.keras.layers
    return tf.keras.Sequential([layers.Flatten(), hidden(), layers.Dense(num_classes)], name="own")
"""
LAYERS = """
import tensorflow as tf

def hidden():
    return tf.keras.layers.Dense(32, activation="relu")
"""
PREPROCESSING = """
import tensorflow as tf

def preprocessing_fn(inputs):
    flat = tf.io.decode_raw(tf.reshape(inputs["image"], [-1]), tf.uint8)
    images = tf.reshape(tf.cast(flat, tf.float32) / 255.0, [-1, 28, 28, 1])
    return {"image": images, "label": tf.reshape(inputs["label"], [-1])}
"""
FIRST = ("TfdsExampleGen", "ImageSchemaGen", "StatisticsGen", "ExampleValidator")
LAST = ("Evaluator", "Pusher")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A user's folder: a declaration, a network, a preprocessing_fn."""
    folder = tmp_path / "own"
    folder.mkdir()
    for name, text in {
        "own.yaml": DECLARATION,
        "own_model.py": MODEL,
        "own_layers.py": LAYERS,
        "own_preprocessing.py": PREPROCESSING,
    }.items():
        (folder / name).write_text(text)
    return folder


def test_only_what_changed_runs_again(workdir, own):
    declaration = str(own / "own.yaml")
    workdir.run(declaration)
    assert set(workdir.states("own").values()) == {"ran", "resolved"}
    first = workdir.summary("own")

    workdir.run(declaration)
    assert {state for node, state in workdir.states("own").items() if node != "BaselineResolver"} == {"cached"}
    assert workdir.summary("own")["accuracy"] == first["accuracy"]
    assert workdir.summary("own")["pushed"] == first["pushed"]

    # A module that the model imports: TFX itself sees only the name of a dotted path.
    (own / "own_layers.py").write_text(LAYERS.replace("32", "48"))
    workdir.run(declaration)
    states = workdir.states("own")
    assert {node: states[node] for node in (*FIRST, "Transform")} == dict.fromkeys((*FIRST, "Transform"), "cached")
    assert {node: states[node] for node in ("Trainer", *LAST)} == dict.fromkeys(("Trainer", *LAST), "ran")

    # A failing model: nothing of it is kept, and what came before is not done again.
    (own / "own_layers.py").write_text(LAYERS.replace("return", "raise ValueError('no such layer')  # "))
    said = workdir.run(declaration, code=5)
    assert "ValueError: no such layer" in said
    assert "own_layers.py" in said

    (own / "own_layers.py").write_text(LAYERS)
    (own / "own_preprocessing.py").write_text(PREPROCESSING.replace("255.0", "127.5"))
    workdir.run(declaration)
    states = workdir.states("own")
    assert {node: states[node] for node in FIRST} == dict.fromkeys(FIRST, "cached")
    assert {node: states[node] for node in ("Transform", "Trainer", *LAST)} == dict.fromkeys(
        ("Transform", "Trainer", *LAST), "ran"
    )

    counts = workdir.executions("own")
    for node in FIRST:
        assert counts[node] == {"COMPLETE": 1, "CACHED": 4}, node
    assert counts["Transform"] == {"COMPLETE": 2, "CACHED": 3}
    assert counts["Trainer"] == {"COMPLETE": 3, "CACHED": 1, "FAILED": 1}
    for node in LAST:
        assert counts[node] == {"COMPLETE": 3, "CACHED": 1}, node
    assert len(list((workdir.path / "own" / "serving").iterdir())) == 3
