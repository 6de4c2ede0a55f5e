"""A project with a `pipeline/`, `components/`, `data/` and `models/` of its own, which a cluster's tasks import."""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.cluster, pytest.mark.timeout(600)]

FILES = {
    "mine.yaml": """
name: mine
data: {dataset: digits, shards: 2, splits: {train: "train[:80%]", eval: "train[80%:]"}}
transform: {preprocessing_fn: "components.cleaning:preprocessing_fn"}
trainer:
  model: models.network:small
  train_steps: 60
  save_checkpoints_steps: 30
  global_batch_size: 64
  optimizer: {name: momentum, learning_rate: 0.02}
  distribution: {train: {strategy: multi_worker_mirrored, workers: 2}, evaluator: true}
evaluator: {min_accuracy: 0.3}
""",
    "pipeline/__init__.py": "",
    "pipeline/names.py": "LAYER = 'of_my_own'\n",
    "components/__init__.py": "",
    "components/cleaning.py": """
import tensorflow as tf

from data.sizes import SCALE


def preprocessing_fn(inputs, custom_config):
    flat = tf.io.decode_raw(tf.reshape(inputs["image"], [-1]), tf.uint8)
    image = tf.cast(tf.reshape(flat, [-1, *custom_config["image_shape"]]), tf.float32) / SCALE
    return {"image": image, "label": tf.reshape(inputs["label"], [-1])}
""",
    # No __init__.py: a namespace package, as a folder of data often is.
    "data/sizes.py": "SCALE = 255.0\nHIDDEN = 32\n",
    "models/__init__.py": "",
    "models/network.py": """
import tensorflow as tf

from data.sizes import HIDDEN
from pipeline.names import LAYER


def small(num_classes):
    return tf.keras.Sequential(
        [
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(HIDDEN, activation="relu", name=LAYER),
            tf.keras.layers.Dense(num_classes),
        ]
    )
""",
}


@pytest.fixture
def project(tmp_path):
    """The project's folder."""
    folder = tmp_path / "project"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_tfx_and_our_command_line_run_it(environment, project):
    def tfx(*args: str) -> str:
        return environment.run("tfx", *args, "--engine", "local", cwd=project)

    assert "ok: mine.yaml" in environment.run("tfx-estimator", "validate", "mine.yaml", cwd=project)
    environment.run("tfx-estimator", "copy", "local_runner", "local_runner.py", cwd=project)
    script = project / "local_runner.py"
    script.write_text(script.read_text().replace('DECLARATION = "digits"', 'DECLARATION = "mine.yaml"'))
    created = tfx("pipeline", "create", "--pipeline_path", "local_runner.py")
    assert 'Pipeline "mine" created successfully' in created
    assert "mine" in tfx("pipeline", "list")
    tfx("run", "create", "--pipeline_name", "mine")
    home = project / "runs" / "mine"
    (pushed,) = (home / "serving").iterdir()
    environment.run("tfx-estimator", "run", "mine.yaml", cwd=project)
    (summary,) = home.glob("logs/*/summary.json")
    states = {run["node"]: run["state"] for run in json.loads(summary.read_text())["components"]}
    assert states.pop("BaselineResolver") == "resolved"
    assert set(states.values()) == {"cached"}
    assert len(states) == 8
    logs = [log.name.partition(".")[0] for log in home.rglob("*.log")]
    assert {"chief-0", "worker-0", "evaluator-0"} <= set(logs), logs
    # The layer's name, which comes from the project's own `pipeline`.
    assert b"of_my_own/kernel" in (pushed / "saved_model.pb").read_bytes()
