"""A task that dies, stops or never starts costs time, and at most the steps of one checkpoint interval."""

from __future__ import annotations

import dataclasses
import json

import psutil
import pytest
import tensorflow as tf

from tests.faults.conftest import INTERVAL, SERVED, STEPS
from tests.faults.injector import EXPORTING, STARTING, TRAINING, Fault

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]

MWMS = {"strategy": "multi_worker_mirrored"}
PS = {"strategy": "parameter_server"}
KERAS = ("keras", "keras_custom_loop")
MOMENTS = (STARTING, TRAINING, EXPORTING)
# Independent of the path: tried on the Estimator path only.
KERAS_SAME = (("evaluator-0", STARTING), ("exporter-0", STARTING), ("exporter-0", TRAINING))
long = pytest.mark.long


def _case(train, task, moment, *marks, path="estimator"):
    return pytest.param(path, train, task, moment, marks=marks, id=f"{path}-{train['strategy']}-{task}-{moment}")


@pytest.mark.parametrize(
    ("path", "train", "task", "moment"),
    [
        _case(MWMS, "chief-0", TRAINING),
        *(
            _case(MWMS, task, moment, long)
            for task in ("chief-0", "worker-0", "evaluator-0", "exporter-0")
            for moment in MOMENTS
            if (task, moment) not in (("chief-0", TRAINING), ("exporter-0", TRAINING))
        ),
        *(_case(PS, task, moment, long) for task in ("chief-0", "worker-0", "ps-0") for moment in MOMENTS),
        _case(PS, "evaluator-0", TRAINING, long),
        *(
            _case(MWMS, task, moment, long, path=path)
            for path in KERAS
            for task in ("chief-0", "worker-0", "evaluator-0", "exporter-0")
            for moment in MOMENTS
            if (task, moment) not in KERAS_SAME
        ),
        *(_case({"strategy": "one_device"}, "chief-0", TRAINING, long, path=path) for path in KERAS),
        *(
            _case(SERVED, task, moment, long, path=path)
            for path in KERAS
            for task in ("chief-0", "worker-0", "ps-0")
            for moment in MOMENTS
        ),
    ],
)
def test_a_killed_task(faulty, path, train, task, moment):
    settings = faulty.settings(train, path, evaluator=task.startswith("evaluator"))
    fault = Fault(task, moment, psutil.Process.kill)
    model, model_run = faulty.run(f"SIGKILL {task} {moment}", settings, fault)
    _check(faulty, train, model, model_run, repeated=int(task.startswith("worker") and moment is TRAINING))


@pytest.mark.parametrize(
    ("path", "train", "task", "moment"),
    [
        *(
            _case(MWMS, task, TRAINING, long, path=path)
            for path in ("estimator", *KERAS)
            for task in ("chief-0", "worker-0", "evaluator-0")
        ),
        *(_case(PS, task, TRAINING, long) for task in ("chief-0", "worker-0", "ps-0")),
        *(_case(SERVED, task, TRAINING, long, path=path) for path in KERAS for task in ("chief-0", "worker-0", "ps-0")),
    ],
)
def test_a_stopped_task(faulty, path, train, task, moment):
    settings = faulty.settings(train, path, evaluator=task.startswith("evaluator"))
    fault = Fault(task, moment, psutil.Process.suspend)
    model, model_run = faulty.run(f"SIGSTOP {task} training", settings, fault)
    _check(faulty, train, model, model_run, repeated=int(task.startswith("worker")))
    if train is SERVED:
        # The tasks that waited for it are not blamed.
        (restart,) = json.loads(model_run.get_string_custom_property("history"))
        assert restart["cause"].startswith(f"{task} made no progress")
        alone = f"{task} was started again" if task.startswith("worker") else "all tasks were started again"
        assert restart["what"] == alone


@long
def test_a_task_that_never_starts(faulty):
    # Detected after start_timeout: little more than the time of a start.
    settings = dataclasses.replace(faulty.settings(MWMS), start_timeout=25.0)
    fault = Fault("worker-0", STARTING, psutil.Process.suspend)
    model, model_run = faulty.run("worker-0 never starts", settings, fault)
    _check(faulty, MWMS, model, model_run)


def _check(faulty, train, model, model_run, repeated=0):
    number = model_run.get_float_custom_property
    if train is not PS:
        assert number("last_step") == STEPS
    else:
        # Each asynchronous worker completes its step.
        assert STEPS <= number("last_step") <= STEPS + 2
    if train is SERVED:
        # TensorFlow repeats a dying worker's step, which may have changed the weights already.
        done = tf.train.load_checkpoint(model_run.uri).get_tensor("optimizer/iter/.ATTRIBUTES/VARIABLE_VALUE")
        assert number("extra_steps") == done - STEPS <= repeated
        # The partitioned variables were merged: the served model is whole.
        served = tf.saved_model.load(str(model / "Format-Serving"))
        shapes = sorted(tuple(weight.shape) for weight in served.weights)
        assert shapes == [(3, 3, 1, 32), (10,), (32,), (64,), (64, 10), (5408, 64)]
    else:
        assert number("extra_steps") == number("last_step") - STEPS
    assert number("restarts") <= 2
    history = json.loads(model_run.get_string_custom_property("history"))
    # With parameter servers, the workers continue while the chief saves.
    most = 2 * INTERVAL if train is PS else INTERVAL
    assert all((restart["lost_steps"] or 0) <= most for restart in history)
    assert number("eval_accuracy") > 0.9
    assert (model / "Format-Serving" / "saved_model.pb").exists()
    start, resumed = faulty.rows[-1][-2:]
    assert resumed <= start + 30
