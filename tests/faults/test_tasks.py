"""A task that dies, stops or never starts costs time, and no more steps than one checkpoint interval."""

from __future__ import annotations

import dataclasses
import json

import psutil
import pytest

from tests.faults.conftest import INTERVAL, STEPS
from tests.faults.injector import EXPORTING, STARTING, TRAINING, Fault

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]

MWMS = {"strategy": "multi_worker_mirrored"}
PS = {"strategy": "parameter_server"}
long = pytest.mark.long


def _case(train, task, moment, *marks):
    return pytest.param(train, task, moment, marks=marks, id=f"{train['strategy']}-{task}-{moment}")


@pytest.mark.parametrize(
    ("train", "task", "moment"),
    [
        _case(MWMS, "chief-0", STARTING, long),
        _case(MWMS, "chief-0", TRAINING),
        _case(MWMS, "chief-0", EXPORTING, long),
        _case(MWMS, "worker-0", STARTING, long),
        _case(MWMS, "worker-0", TRAINING, long),
        _case(MWMS, "worker-0", EXPORTING, long),
        _case(MWMS, "evaluator-0", STARTING, long),
        _case(MWMS, "evaluator-0", TRAINING, long),
        _case(MWMS, "evaluator-0", EXPORTING, long),
        _case(PS, "ps-0", STARTING, long),
        _case(PS, "ps-0", TRAINING),
        _case(PS, "ps-0", EXPORTING, long),
        _case(MWMS, "exporter-0", STARTING, long),
        _case(MWMS, "exporter-0", EXPORTING, long),
        _case(PS, "chief-0", STARTING, long),
        _case(PS, "chief-0", TRAINING, long),
        _case(PS, "chief-0", EXPORTING, long),
        _case(PS, "worker-0", EXPORTING, long),
        _case(PS, "evaluator-0", TRAINING, long),
        _case(PS, "worker-0", STARTING, long),
        _case(PS, "worker-0", TRAINING, long),
    ],
)
def test_a_killed_task(faulty, train, task, moment):
    settings = faulty.settings(train, evaluator=task.startswith("evaluator"))
    fault = Fault(task, moment, psutil.Process.kill)
    model, model_run = faulty.run(f"SIGKILL {task} {moment}", settings, fault)
    _check(faulty, train, model, model_run)


@pytest.mark.parametrize(
    ("train", "task"),
    [
        pytest.param(MWMS, "worker-0", id="multi_worker_mirrored-worker-0"),
        pytest.param(MWMS, "chief-0", id="multi_worker_mirrored-chief-0", marks=long),
        pytest.param(MWMS, "evaluator-0", id="multi_worker_mirrored-evaluator-0", marks=long),
        pytest.param(PS, "ps-0", id="parameter_server-ps-0", marks=long),
        pytest.param(PS, "chief-0", id="parameter_server-chief-0", marks=long),
        pytest.param(PS, "worker-0", id="parameter_server-worker-0", marks=long),
    ],
)
def test_a_stopped_task(faulty, train, task):
    settings = faulty.settings(train, evaluator=task.startswith("evaluator"))
    fault = Fault(task, TRAINING, psutil.Process.suspend)
    model, model_run = faulty.run(f"SIGSTOP {task} training", settings, fault)
    _check(faulty, train, model, model_run)


@long
def test_a_task_that_never_starts(faulty):
    # Noticed after start_timeout: little more than a start takes.
    settings = dataclasses.replace(faulty.settings(MWMS), start_timeout=25.0)
    fault = Fault("worker-0", STARTING, psutil.Process.suspend)
    model, model_run = faulty.run("worker-0 never starts", settings, fault)
    _check(faulty, MWMS, model, model_run)


def _check(faulty, train, model, model_run):
    number = model_run.get_float_custom_property
    if train is MWMS:
        assert number("last_step") == STEPS
    else:
        # Each asynchronous worker ends the step that it is in.
        assert STEPS <= number("last_step") <= STEPS + 2
    assert number("extra_steps") == number("last_step") - STEPS
    assert number("restarts") <= 2
    history = json.loads(model_run.get_string_custom_property("history"))
    assert all((restart["lost_steps"] or 0) <= INTERVAL for restart in history)
    assert number("eval_accuracy") > 0.9
    assert (model / "Format-Serving" / "saved_model.pb").exists()
    start, resumed = faulty.rows[-1][-2:]
    assert resumed <= start + 30
