"""The distribution of steps to the workers of parameter servers, and of variables to the servers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tfx_estimator.components.trainer.keras.drivers import stretch
from tfx_estimator.pipeline.config.trainer import TrainerSection

NETWORK = """
import json
import tensorflow as tf

class Told(tf.keras.layers.Dense):
    def build(self, shape):
        super().build(shape)
        parts = [each.shape.as_list() for each in getattr(self.kernel, "variables", [self.kernel])]
        with open(FILE, "a") as file:
            file.write(json.dumps(parts) + "\\n")

def network(num_classes):
    return tf.keras.Sequential([tf.keras.layers.Flatten(), Told(num_classes)])
"""


@pytest.mark.parametrize(
    ("checkpoints", "reports", "steps"),
    [(100, 40, 25), (25, 20, 25), (1000, 100, 100), (97, 20, 97), (5, 1, 5), (300, 1, 10), (503, 100, 100)],
)
def test_a_stretch_ends_at_each_checkpoint_and_is_long_enough(checkpoints, reports, steps):
    section = TrainerSection(model="mnist_cnn", save_checkpoints_steps=checkpoints, log_every_steps=reports)
    assert stretch(section) == steps
    # A prime interval has a shorter stretch before each checkpoint.
    assert checkpoints % steps == 0 or checkpoints == 503


# A kernel of 784 rows of 40 bytes.
@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("path", "cut", "rows"),
    [
        ("keras", {"min_bytes": 4096}, [392, 392]),
        ("keras_custom_loop", {"max_bytes": 8000}, [196, 196, 196, 196]),
        ("keras", {"fixed_shards": 3}, [262, 261, 261]),
    ],
)
def test_variables_are_partitioned_as_declared_and_whole_in_the_export(training, settings, importable, path, cut, rows):
    import tensorflow as tf

    built = importable / "built"
    (importable / "told_network.py").write_text(NETWORK.replace("FILE", repr(str(built))))
    train = {"strategy": "parameter_server", "workers": 2, "ps": 2, "variable_partitioner": cut}
    section = {"path": path, "model": "told_network:network", "distribution": {"train": train, "max_restarts": 0}}
    model, run = training.run(settings(section, path=path))
    assert run.get_float_custom_property("last_step") == 60
    trained, *others = map(json.loads, built.read_text().splitlines())
    assert trained == [[count, 10] for count in rows]
    # For evaluation and export.
    assert others
    assert all(each == [[784, 10]] for each in others)
    served = tf.saved_model.load(str(model / "Format-Serving"))
    assert sorted(tuple(each.shape) for each in served.weights) == [(10,), (784, 10)]
    checkpoint = tf.train.load_checkpoint(run.uri)
    assert (784, 10) in map(tuple, checkpoint.get_variable_to_shape_map().values())


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(240)
def test_servers_do_not_wait_for_each_other_whatever_the_exported_threads(training, settings, monkeypatch):
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "1")
    train = {"strategy": "parameter_server", "workers": 2, "ps": 1}
    section = {"path": "keras", "distribution": {"train": train, "max_restarts": 0}}
    _, run = training.run(settings(section, path="keras", stall_timeout=40.0))
    assert run.get_float_custom_property("last_step") == 60
    for task in ("chief-0", "worker-0", "ps-0"):
        (log,) = (Path(run.uri) / "logs").glob(f"{task}.*.log")
        assert "runtime: inter-op threads: 3, " in log.read_text()


COUNTED = """
import tensorflow as tf

class Counted(tf.keras.Model):
    def __init__(self, classes):
        super().__init__()
        self.flatten, self.dense = tf.keras.layers.Flatten(), tf.keras.layers.Dense(classes)
        self.seen = tf.keras.metrics.Sum(name="seen")

    def call(self, images):
        return self.dense(self.flatten(images))

    @property
    def metrics(self):
        return [self.seen]

    def train_step(self, data):
        images, labels = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(images, labels, self(images, training=True))
        self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        self.seen.update_state(1.0)
        return {"loss": loss, "seen": self.seen.result()}

def network(num_classes):
    model = Counted(num_classes)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.SGD(0.05), loss)
    return model
"""


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(240)
@pytest.mark.parametrize("path", ["keras_custom_loop", "keras"])
def test_the_metrics_of_a_train_step_are_those_of_a_stretch(training, settings, importable, path):
    from tests.equivalence.conftest import read_losses

    (importable / "counted_network.py").write_text(COUNTED)
    # A single worker executes the steps in order: the last scheduled step is the last executed.
    train = {"strategy": "parameter_server", "workers": 2, "ps": 1}
    section = {"path": path, "model": "counted_network:network", "distribution": {"train": train, "max_restarts": 0}}
    _, run = training.run(settings(section, path=path))
    # The first stretches are short, since their duration is unknown.
    assert read_losses(run.uri, ("seen",))[1:] == [(40, 20.0), (60, 20.0)]
