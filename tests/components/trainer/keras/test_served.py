"""How steps are handed out to the workers of parameter servers, and variables to the servers."""

from __future__ import annotations

import json

import pytest

from tfx_estimator.components.trainer.keras.served import stretch
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


@pytest.mark.unit
@pytest.mark.parametrize(
    ("checkpoints", "reports", "steps"),
    [(100, 40, 25), (25, 20, 25), (1000, 100, 100), (97, 20, 97), (5, 1, 5), (300, 1, 10)],
)
def test_a_stretch_ends_at_each_checkpoint_and_is_not_short(checkpoints, reports, steps):
    section = TrainerSection(model="mnist_cnn", save_checkpoints_steps=checkpoints, log_every_steps=reports)
    assert stretch(section) == steps
    assert checkpoints % steps == 0


# A kernel of 784 rows of 40 bytes.
@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("path", "cut", "rows"),
    [
        ("keras", {"min_bytes": 4096}, [392, 392]),
        ("keras_custom_loop", {"min_bytes": 4096, "max_shards": 3}, [262, 261, 261]),
        ("keras_custom_loop", {"max_bytes": 8000}, [196, 196, 196, 196]),
        ("keras", {"fixed_shards": 3}, [262, 261, 261]),
    ],
)
def test_variables_are_cut_as_declared_and_what_is_served_is_whole(
    training, settings, tmp_path, monkeypatch, path, cut, rows
):
    import tensorflow as tf

    built = tmp_path / "built"
    (tmp_path / "told_network.py").write_text(NETWORK.replace("FILE", repr(str(built))))
    monkeypatch.syspath_prepend(str(tmp_path))
    train = {"strategy": "parameter_server", "workers": 2, "ps": 2, "variable_partitioner": cut}
    section = {"path": path, "model": "told_network:network", "distribution": {"train": train, "max_restarts": 0}}
    model, run = training.run(settings(section, path=path))
    assert run.get_float_custom_property("last_step") == 60
    trained, *others = map(json.loads, built.read_text().splitlines())
    assert trained == [[count, 10] for count in rows]
    # To be evaluated and served.
    assert others
    assert all(each == [[784, 10]] for each in others)
    served = tf.saved_model.load(str(model / "Format-Serving"))
    assert sorted(tuple(each.shape) for each in served.weights) == [(10,), (784, 10)]
    checkpoint = tf.train.load_checkpoint(run.uri)
    assert (784, 10) in map(tuple, checkpoint.get_variable_to_shape_map().values())
