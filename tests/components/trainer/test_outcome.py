"""What the supervisor sums up of the events of a training."""

from __future__ import annotations

import json
import pickle

import pytest

from tfx_estimator.components.trainer.protocol.events import Event
from tfx_estimator.components.trainer.protocol.task_spec import TaskSpec
from tfx_estimator.components.trainer.supervisor.outcome import Outcome, Restart
from tfx_estimator.components.trainer.supervisor.report import Report

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("batch_size", [8, None])
@pytest.mark.parametrize(("last", "extra"), [(49, 0), (50, 0), (52, 2)])
def test_steps_beyond_the_declared_ones_are_counted(batch_size, last, extra):
    report = Report(batch_size, total_steps=50)
    for step in (0, last):
        report.hear(TaskSpec("chief", 0, 1), {"event": Event.STEP, "step": step, "time": float(step)})
    properties = report.outcome().properties()
    assert (properties["last_step"], properties["extra_steps"]) == (last, extra)
    assert properties.get("examples_per_second") == (batch_size and pytest.approx(batch_size))


def test_what_is_kept_of_an_attempt_does_not_grow_with_its_reports():
    report, chief, sizes = Report(batch_size=8, total_steps=10_000), TaskSpec("chief", 0, 1), []
    # At first two steps a second, in the end ten.
    moment = 0.0
    for step in range(1, 2001):
        report.hear(chief, {"event": Event.STEP, "step": step, "time": moment})
        moment += 0.5 if step < 1000 else 0.1
        if step in (1000, 2000):
            sizes.append(len(pickle.dumps(report.__dict__)))
    assert sizes[1] < sizes[0] + 100
    assert report.steps_per_second() == pytest.approx(10)
    # All of the attempt: 999 steps in 499.5 s, and 1,000 in 100 s.
    assert report.outcome().properties()["examples_per_second"] == pytest.approx(8 * 1999 / 599.5)


def test_steps_that_were_done_twice_are_counted_and_end_with_the_checkpoint_that_they_were_not_in():
    report = Report(batch_size=8, total_steps=50)
    for moment, (step, extra) in enumerate([(0, 0), (20, 2), (10, 1), (50, 1)]):
        told = {"event": Event.STEP, "step": step, "extra_steps": extra, "time": float(moment)}
        report.hear(TaskSpec("chief", 0, 1), told)
    assert report.outcome().properties()["extra_steps"] == 1


def test_what_is_not_known_of_a_training_is_not_told():
    chief = TaskSpec("chief", 0, 1)
    # A run_fn reports no step.
    run_fn = Report(batch_size=None, total_steps=50)
    run_fn.hear(chief, {"event": Event.RUNNING})
    assert set(run_fn.outcome().properties()) == {"train_seconds", "restarts", "lost_steps"}
    # Nobody said how many steps to train.
    endless = Report(batch_size=8, total_steps=None)
    for step in (0, 10):
        endless.hear(chief, {"event": Event.STEP, "step": step, "time": float(step)})
    assert "extra_steps" not in endless.outcome().properties()
    # One report is no pace.
    short = Report(batch_size=8, total_steps=1)
    short.hear(chief, {"event": Event.STEP, "step": 1, "time": 1.0})
    properties = short.outcome().properties()
    assert properties["last_step"] == 1
    assert "examples_per_second" not in properties


def test_what_a_failure_cost_is_known_also_when_the_restart_failed_too():
    report, chief = Report(batch_size=8, total_steps=100), TaskSpec("chief", 0, 1)
    report.hear(chief, {"event": Event.STEP, "step": 78, "time": 1.0})
    report.restarted(Restart("worker-0 was killed", "all tasks were started again", 80))
    report.restarted(Restart("chief-0 was killed", "all tasks were started again", -1))
    report.hear(chief, {"event": Event.STEP, "step": 50, "time": 2.0})
    report.hear(chief, {"event": Event.STEP, "step": 100, "time": 3.0})
    # One at the very end costs no step.
    report.restarted(Restart("evaluator-0 was killed", "evaluator-0 was started again", 100))
    outcome = report.outcome()
    assert [each.lost_steps for each in outcome.restarts] == [None, 30, 0]
    assert outcome.restarts[1].seconds is not None
    assert outcome.properties()["lost_steps"] == 30


def test_a_restart_that_follows_from_another_counts_with_it():
    restarts = (
        Restart("ps-0 was killed", "ps-0 was started again", 30),
        Restart("chief-0 failed", "chief-0 was started again", 32, follows=True, lost_steps=7, seconds=9.0),
    )
    outcome = Outcome(0, 50, 60.0, 100.0, {}, restarts)
    assert outcome.properties()["restarts"] == 1
    assert outcome.properties()["lost_steps"] == 7
    assert [each["cause"] for each in json.loads(outcome.history())] == ["ps-0 was killed", "chief-0 failed"]
