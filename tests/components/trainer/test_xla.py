"""`trainer.xla` in whole trainings: the step is compiled, and the losses are the same."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = [pytest.mark.long, pytest.mark.equivalence, pytest.mark.timeout(400)]

PATHS = ("estimator", "keras", "keras_custom_loop")
ONE = {}
NAMED = {"strategy": "one_device", "devices": {"cpu": 1}}
MIRRORED = {"strategy": "mirrored", "devices": {"cpu": 2}}
WORKERS = {"strategy": "multi_worker_mirrored", "workers": 2}
# Not of Adam, whose division makes much of a rounding.
SGD = {"name": "momentum", "learning_rate": 0.01, "warmup_steps": 5}


def _losses(run):
    """Of the training, by step, and of the evaluation at the end."""
    import tensorflow as tf

    found = {}
    for file in tf.io.gfile.glob(f"{run.uri}/events.out.tfevents.*"):
        for event in tf.compat.v1.train.summary_iterator(file):
            for value in event.summary.value:
                if value.tag == "loss":
                    found[event.step] = value.simple_value
    assert len(found) > 3
    return {**found, "evaluation": run.get_float_custom_property("eval_average_loss")}


def _train(training, settings, path, strategy, **values):
    distribution = {"distribution": {"train": strategy}} if strategy else {}
    values = {"path": path, "train_steps": 30, "log_every_steps": 5, "optimizer": SGD, **distribution, **values}
    _, run = training.run(settings(values, path=path), steps=30)
    assert run.get_float_custom_property("last_step") == 30
    return run


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("strategy", [ONE, NAMED, MIRRORED, WORKERS], ids=["one", "named", "mirrored", "workers"])
def test_losses_are_those_of_the_step_that_is_not_compiled(training, settings, path, strategy):
    plain, compiled = (_train(training, settings, path, strategy, xla=xla) for xla in (False, True))
    assert _losses(compiled) == pytest.approx(_losses(plain), abs=1e-5)
    for run in (plain, compiled):
        (log,) = Path(run.uri).glob("logs/chief-0.attempt-*.log")
        assert ("Compiled cluster using XLA" in log.read_text()) == (run is compiled)
