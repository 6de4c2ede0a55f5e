"""A task that dies, stops or never starts costs time, and no more steps than one checkpoint interval."""

from __future__ import annotations

import dataclasses
import json

import psutil
import pytest

from tests.faults.conftest import INTERVAL, SERVED, STEPS
from tests.faults.injector import EXPORTING, STARTING, TRAINING, Fault

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]

MWMS = {"strategy": "multi_worker_mirrored"}
PS = {"strategy": "parameter_server"}
KERAS = ("keras", "keras_custom_loop")
long = pytest.mark.long


def _case(train, task, moment, *marks, path="estimator"):
    return pytest.param(path, train, task, moment, marks=marks, id=f"{path}-{train['strategy']}-{task}-{moment}")


@pytest.mark.parametrize(
    ("path", "train", "task", "moment"),
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
        _case(PS, "ps-0", TRAINING, long),
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
        *(
            _case(MWMS, task, moment, long, path=path)
            for path in KERAS
            for task, moment in (
                ("chief-0", STARTING),
                ("chief-0", TRAINING),
                ("chief-0", EXPORTING),
                ("worker-0", STARTING),
                ("worker-0", TRAINING),
                ("worker-0", EXPORTING),
                ("evaluator-0", TRAINING),
                ("evaluator-0", EXPORTING),
                ("exporter-0", EXPORTING),
            )
        ),
        *(_case({"strategy": "one_device"}, "chief-0", TRAINING, long, path=path) for path in KERAS),
        *(
            _case(SERVED, task, moment, long, path=path)
            for path in KERAS
            for task in ("chief-0", "worker-0", "ps-0")
            for moment in (STARTING, TRAINING, EXPORTING)
        ),
    ],
)
def test_a_killed_task(faulty, path, train, task, moment):
    settings = faulty.settings(train, path, evaluator=task.startswith("evaluator"))
    fault = Fault(task, moment, psutil.Process.kill)
    model, model_run = faulty.run(f"SIGKILL {task} {moment}", settings, fault)
    _check(faulty, train, model, model_run)


@pytest.mark.parametrize(
    ("path", "train", "task", "moment"),
    [
        _case(MWMS, "worker-0", TRAINING, long),
        _case(MWMS, "chief-0", TRAINING, long),
        _case(MWMS, "evaluator-0", TRAINING, long),
        _case(PS, "ps-0", TRAINING, long),
        _case(PS, "chief-0", TRAINING, long),
        _case(PS, "worker-0", TRAINING, long),
        _case(MWMS, "worker-0", TRAINING, long, path="keras_custom_loop"),
        _case(MWMS, "worker-0", TRAINING, long, path="keras"),
        *(_case(MWMS, task, TRAINING, long, path=path) for path in KERAS for task in ("chief-0", "evaluator-0")),
        *(_case(SERVED, task, TRAINING, long, path=path) for path in KERAS for task in ("chief-0", "worker-0", "ps-0")),
    ],
)
def test_a_stopped_task(faulty, path, train, task, moment):
    settings = faulty.settings(train, path, evaluator=task.startswith("evaluator"))
    fault = Fault(task, moment, psutil.Process.suspend)
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
    if train is not PS:
        assert number("last_step") == STEPS
    else:
        # Each asynchronous worker ends the step that it is in.
        assert STEPS <= number("last_step") <= STEPS + 2
    assert number("extra_steps") == number("last_step") - STEPS
    assert number("restarts") <= 2
    history = json.loads(model_run.get_string_custom_property("history"))
    # The others go on while a chief of parameter servers saves.
    most = 2 * INTERVAL if train is PS else INTERVAL
    assert all((restart["lost_steps"] or 0) <= most for restart in history)
    assert number("eval_accuracy") > 0.9
    assert (model / "Format-Serving" / "saved_model.pb").exists()
    start, resumed = faulty.rows[-1][-2:]
    assert resumed <= start + 30
