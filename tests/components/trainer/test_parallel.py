"""A network on several devices is trained, killed, started again, evaluated and served as any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.components.trainer.conftest import served_accuracy
from tfx_estimator.pipeline.base.errors import TaskFailedError, UserCodeError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

NETWORK = """
import os, signal
import tensorflow as tf

class Kill(tf.keras.layers.Layer):
    def __init__(self, at, marker):
        super().__init__(name="kill")
        self.at, self.marker, self.calls = at, marker, 0

    def call(self, inputs, training=None):
        if training and self.at:
            with tf.control_dependencies([tf.py_function(self.count, [], [])]):
                return tf.identity(inputs)
        return inputs

    def count(self):
        self.calls += 1
        if self.calls == self.at and not os.path.exists(self.marker):
            open(self.marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

def network(num_classes, kill_at, marker):
    layers = tf.keras.layers
    stack = [layers.Conv2D(8, 3, strides=2, name="conv"), layers.ReLU(name="relu"), Kill(kill_at, marker)]
    return tf.keras.Sequential([*stack, layers.Flatten(name="flatten"), layers.Dense(num_classes, name="logits")])
"""
MODEL = {"model_parallel": {"devices": ["cpu:0", "cpu:1"], "layers": {"logits": 1, "kill": 1}}}
PIPELINE = {"pipeline_parallel": {"stages": 2, "microbatches": 4}}


@pytest.fixture
def killed_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes entries of a trainer whose process is killed once, at a call of the network."""
    (tmp_path / "own_killed.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(path: str, kill_at: int = 0, **section):
        return {
            "path": path,
            "model": "own_killed:network",
            "params": {"kill_at": kill_at, "marker": str(tmp_path / "marker")},
            "train_steps": 60,
            "save_checkpoints_steps": 20,
            **section,
        }

    return make


@pytest.mark.long
@pytest.mark.parametrize("path", ["estimator", "keras", "keras_custom_loop"])
@pytest.mark.parametrize(("parallel", "calls"), [(MODEL, 1), (PIPELINE, 4)], ids=["layers", "stages"])
def test_it_goes_on_from_a_checkpoint_and_what_is_served_names_no_device(
    training, settings, digits, killed_network, tmp_path, path, parallel, calls
):
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    values = killed_network(path, kill_at=30 * calls, **parallel)
    model, run = training.run(settings(values, path=path))
    assert (tmp_path / "marker").exists()
    number = run.get_float_custom_property
    assert (number("restarts"), number("last_step")) == (1, 60)
    assert number("eval_accuracy") > 0.6
    # This process has one CPU.
    accuracy = served_accuracy(model, digits["examples"][0].uri)
    assert accuracy == pytest.approx(number("eval_accuracy"), abs=1e-6)
    exported = [*model.rglob("saved_model.pb")]
    assert len(exported) == (2 if path == "estimator" else 1)
    for file in exported:
        graph = SavedModel.FromString(file.read_bytes()).meta_graphs[0].graph_def
        nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
        assert {node.device for node in nodes} <= {"", "/device:CPU:0", "/device:CPU:*"}
    told = run.get_string_custom_property("stages")
    assert ("2 stages, 4 microbatches: bubble 0." in told) == ("pipeline_parallel" in parallel)
    assert not (Path(run.uri) / "pipeline_profile").exists()
    (log, *_) = sorted((Path(run.uri) / "logs").glob("chief-0.attempt-*.log"))
    cut = "trainer.pipeline_parallel: conv on cpu:0, relu+kill+flatten+logits on cpu:1"
    assert (cut in log.read_text()) == ("pipeline_parallel" in parallel)
    # Without them the checkpoint is the same network's, and training goes on from it.
    longer = {**values, "train_steps": 70, **dict.fromkeys(parallel)}
    if "model_parallel" in parallel:
        _, run = training.run(settings(longer, path=path), steps=70)
        assert (run.get_float_custom_property("first_step"), run.get_float_custom_property("last_step")) == (60, 70)


@pytest.mark.long
@pytest.mark.parametrize("path", ["estimator", "keras"])
@pytest.mark.parametrize(
    ("parallel", "reason"),
    [
        ({"model_parallel": {**MODEL["model_parallel"], "layers": {"dense*": 1}}}, "no layer 'dense"),
        ({"pipeline_parallel": {"stages": [["conv"], ["head"]], "microbatches": 2}}, "no layer 'head'"),
    ],
)
def test_a_layer_that_is_not_there_is_refused_with_those_that_are(
    training, settings, killed_network, path, parallel, reason
):
    with pytest.raises((UserCodeError, TaskFailedError), match=reason) as told:
        training.run(settings(killed_network(path, **parallel), path=path))
    assert "conv, relu, kill, flatten, logits" in str(told.value)
