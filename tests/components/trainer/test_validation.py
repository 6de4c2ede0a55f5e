"""Checkpoints that are evaluated while one process trains: a curve, which changes nothing of the training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.components.trainer.conftest import Training

pytestmark = [pytest.mark.timeout(180)]


def _evaluated(run) -> list[int]:
    """The global steps of an evaluation's curve."""
    import tensorflow as tf

    found = set()
    for file in sorted(Path(run.uri, "eval").glob("events.out.tfevents.*")):
        for event in tf.compat.v1.train.summary_iterator(str(file)):
            if any(value.tag.endswith("loss") for value in event.summary.value):
                found.add(event.step)
    return sorted(found)


SECTION = {"model": "mnist_cnn", "train_steps": 240, "save_checkpoints_steps": 10}


@pytest.mark.parametrize(
    "path",
    [
        "keras",
        pytest.param("estimator", marks=pytest.mark.long),
        pytest.param("keras_custom_loop", marks=pytest.mark.long),
    ],
)
def test_a_process_that_trains_alone_evaluates_as_often_as_declared(training, settings, path):
    section = {**SECTION, "path": path, "distribution": {"throttle_secs": 1}}
    _, run = training.run(settings(section, path=path), steps=240)
    steps = _evaluated(run)
    assert len(steps) > 2
    assert steps[-1] == run.get_float_custom_property("last_step") == 240
    assert not [step for step in steps if step % 10]


NETWORK = """
import tensorflow as tf

def network(num_classes):
    layers = tf.keras.layers
    hidden = [layers.Dense(1000, "relu"), layers.Dropout(0.5), layers.Dense(1000, "relu"), layers.Dropout(0.5)]
    return tf.keras.Sequential([layers.Flatten(), *hidden, layers.Dense(num_classes)])
"""


@pytest.mark.long
@pytest.mark.parametrize("path", ["keras", "keras_custom_loop"])
def test_what_is_evaluated_meanwhile_changes_nothing_of_the_training(tmp_path, digits, settings, monkeypatch, path):
    """Of a network whose layers draw by chance, as TensorFlow keeps it for the whole process."""
    (tmp_path / "dropping_network.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = {}
    for seconds in (None, 1):
        section = {**SECTION, "path": path, "deterministic": True, "distribution": {"throttle_secs": seconds}}
        section.update(model="dropping_network:network", train_steps=600)
        training = Training(tmp_path / f"every-{seconds}", digits)
        _, found[seconds] = training.run(settings(section, path=path), steps=600)
    assert _evaluated(found[None]) == [600]
    assert len(_evaluated(found[1])) > 2
    loss, same = (found[each].get_float_custom_property("eval_average_loss") for each in (1, None))
    assert loss == same > 0
