"""Evaluations of checkpoints during a single-process training make a curve and do not change the training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.components.trainer.conftest import each_path

pytestmark = [pytest.mark.timeout(180)]


def _evaluated(run) -> list[int]:
    """Returns the global steps of an evaluation's curve."""
    import tensorflow as tf

    found = set()
    for file in sorted(Path(run.uri, "eval").glob("events.out.tfevents.*")):
        for event in tf.compat.v1.train.summary_iterator(str(file)):
            if any(value.tag.endswith("loss") for value in event.summary.value):
                found.add(event.step)
    return sorted(found)


@each_path("keras")
def test_a_process_that_trains_alone_evaluates_as_often_as_declared(train, path):
    _, run = train(path, 240, save_checkpoints_steps=10, distribution={"throttle_secs": 1})
    steps = _evaluated(run)
    assert len(steps) > 2
    assert steps[-1] == run.get_float_custom_property("last_step") == 240
    assert not [step for step in steps if step % 10]


@pytest.mark.long
@pytest.mark.parametrize("path", ["keras", "keras_custom_loop"])
def test_evaluations_during_training_do_not_change_it(train, path):
    # Layers use TensorFlow's process-wide random state; trained in a separate folder.
    section = {"model": "small:dropping", "deterministic": True, "save_checkpoints_steps": 10}
    alone, watched = (
        train(path, 600, log_every_steps=20, distribution={"throttle_secs": seconds}, **section)[1]
        for seconds in (None, 1)
    )
    assert _evaluated(alone) == [600]
    assert len(_evaluated(watched)) > 2
    loss, same = (each.get_float_custom_property("eval_average_loss") for each in (watched, alone))
    assert loss == same > 0
