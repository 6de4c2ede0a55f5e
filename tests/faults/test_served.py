"""Parameter servers of TensorFlow 2, on the Keras paths: the exact number of steps, whichever task dies."""

from __future__ import annotations

import json

import psutil
import pytest
import tensorflow as tf

from tests.faults.conftest import INTERVAL, SERVED, STEPS
from tests.faults.injector import EXPORTING, STARTING, TRAINING, Fault
from tfx_estimator.components.trainer.settings import KERAS, KERAS_LOOP

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]

long = pytest.mark.long


def _settings(faulty, path, settings):
    section = {
        "path": path,
        "optimizer": {"learning_rate": 0.02},
        "train_steps": STEPS,
        "save_checkpoints_steps": INTERVAL,
        "distribution": {"train": SERVED},
    }
    return settings(section, path=path, start_timeout=60.0, stall_timeout=20.0)


@pytest.mark.parametrize(
    ("path", "task", "moment"),
    [
        pytest.param(KERAS_LOOP, "worker-0", TRAINING, id="loop-worker-training", marks=long),
        pytest.param(KERAS_LOOP, "ps-0", TRAINING, id="loop-ps-training", marks=long),
        pytest.param(KERAS_LOOP, "chief-0", TRAINING, id="loop-chief-training", marks=long),
        pytest.param(KERAS_LOOP, "worker-0", STARTING, id="loop-worker-starting", marks=long),
        pytest.param(KERAS, "worker-1", TRAINING, id="fit-worker-training", marks=long),
        pytest.param(KERAS, "ps-1", TRAINING, id="fit-ps-training", marks=long),
        pytest.param(KERAS, "chief-0", TRAINING, id="fit-chief-training", marks=long),
        pytest.param(KERAS, "ps-0", STARTING, id="fit-ps-starting", marks=long),
        pytest.param(KERAS, "chief-0", STARTING, id="fit-chief-starting", marks=long),
        pytest.param(KERAS, "chief-0", EXPORTING, id="fit-chief-exporting", marks=long),
        pytest.param(KERAS_LOOP, "worker-0", EXPORTING, id="loop-worker-exporting", marks=long),
        pytest.param(KERAS_LOOP, "ps-0", EXPORTING, id="loop-ps-exporting", marks=long),
    ],
)
def test_a_killed_task_of_parameter_servers(faulty, settings, path, task, moment):
    _train(faulty, settings, path, f"SIGKILL {task} {moment}", Fault(task, moment, psutil.Process.kill))


@long
@pytest.mark.parametrize("task", ["worker-0", "ps-0", "chief-0"])
@pytest.mark.parametrize("path", [KERAS, KERAS_LOOP])
def test_a_stopped_task_of_parameter_servers(faulty, settings, path, task):
    fault = Fault(task, TRAINING, psutil.Process.suspend)
    model_run = _train(faulty, settings, path, f"SIGSTOP {task} training", fault)
    # Whoever waited for it is not taken for it.
    (restart,) = json.loads(model_run.get_string_custom_property("history"))
    assert restart["cause"].startswith(f"{task} made no progress")
    alone = f"{task} was started again" if task.startswith("worker") else "all tasks were started again"
    assert restart["what"] == alone


def _train(faulty, settings, path, name, fault):
    """Trains, with a fault; checks what came of it, and returns the model_run artifact."""
    model, model_run = faulty.run(name, _settings(faulty, path, settings), fault)
    number, task = model_run.get_float_custom_property, fault.task
    assert number("last_step") == STEPS
    assert number("restarts") <= 2
    assert number("eval_accuracy") > 0.9
    # TensorFlow has the step done again that a dying worker was in, which may have changed the weights already.
    done = int(tf.train.load_checkpoint(model_run.uri).get_tensor("optimizer/iter/.ATTRIBUTES/VARIABLE_VALUE"))
    assert done - STEPS == number("extra_steps")
    assert 0 <= done - STEPS <= (task.startswith("worker") and fault.moment is TRAINING)
    history = json.loads(model_run.get_string_custom_property("history"))
    assert all((restart["lost_steps"] or 0) <= INTERVAL for restart in history)
    # The parts were put together again: what is served is whole.
    served = tf.saved_model.load(str(model / "Format-Serving"))
    shapes = sorted(tuple(weight.shape) for weight in served.weights)
    assert shapes == [(3, 3, 1, 32), (10,), (32,), (64,), (64, 10), (5408, 64)]
    return model_run
