"""The supervisor's report of a training's events, and the cost of a step."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from typing import Any

import pytest

from tfx_estimator.components.trainer.protocol.events import Event, ProgressReader, ProgressWriter
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, EVALUATOR, PS, WORKER, TaskSpec
from tfx_estimator.components.trainer.supervisor.outcome import Outcome, Restart
from tfx_estimator.components.trainer.supervisor.process import cpu_seconds
from tfx_estimator.components.trainer.supervisor.report import Cost, Report


def told(report: Report, *steps: tuple[int, float], **more: Any) -> Report:
    """Records steps of the chief, each with its time."""
    for step, moment in steps:
        report.record(TaskSpec("chief", 0, 1), {"event": Event.STEP, "step": step, "time": float(moment), **more})
    return report


@pytest.mark.parametrize("batch_size", [8, None])
@pytest.mark.parametrize(("last", "extra"), [(49, 0), (50, 0), (52, 2)])
def test_steps_beyond_the_declared_ones_are_counted(batch_size, last, extra):
    report = told(Report(batch_size, total_steps=50), *((step, step) for step in (0, last)))
    properties = report.outcome().properties()
    assert (properties["last_step"], properties["extra_steps"]) == (last, extra)
    assert properties.get("examples_per_second") == (batch_size and pytest.approx(batch_size))


def test_a_started_task_logs_its_pid(caplog):
    caplog.set_level("INFO", "absl.tfx_estimator")
    report = Report(batch_size=8, total_steps=50)
    for kind in (CHIEF, WORKER):
        report.record(TaskSpec(kind, 0, 1), {"event": Event.STARTED, "pid": 77})
    assert [record.getMessage() for record in caplog.records] == ["started, pid 77", "worker-0 started, pid 77"]


@pytest.mark.parametrize(
    ("losses", "warned"),
    [
        ([2.0, 1999.0, 2000.0, 3000.0], ["from 2 to 2000 at step 2"]),
        ([None, -0.5, 1.0, math.inf], ["from 0.5 to inf at step 3"]),
        ([0.0, 2.0, 1.0, math.nan, 1e-9], []),
    ],
)
def test_the_first_report_of_a_loss_a_thousand_times_the_first_one_is_warned_of(caplog, losses, warned):
    caplog.set_level("WARNING", "absl.tfx_estimator")
    report = Report(batch_size=8, total_steps=50)
    for step, loss in enumerate(losses):
        told(report, (step, step), **({} if loss is None else {"loss": loss}))
    found = [record.getMessage() for record in caplog.records]
    assert [text.partition("grown ")[2].partition(":")[0] for text in found] == warned


def test_repeated_steps_are_counted_as_the_last_event_has_them():
    report = Report(batch_size=8, total_steps=50)
    for moment, (step, extra) in enumerate([(0, 0), (20, 2), (10, 1), (50, 1)]):
        told(report, (step, moment), extra_steps=extra)
    assert report.outcome().properties()["extra_steps"] == 1


def test_unknown_values_are_left_out():
    # A run_fn reports no step.
    run_fn = Report(batch_size=None, total_steps=50)
    run_fn.record(TaskSpec("chief", 0, 1), {"event": Event.RUNNING})
    assert set(run_fn.outcome().properties()) == {"train_seconds", "restarts", "lost_steps"}
    # The number of steps is unknown.
    endless = told(Report(batch_size=8, total_steps=None), (0, 0), (10, 10))
    assert "extra_steps" not in endless.outcome().properties()
    # The pace is the average over the attempt: 999 steps in 499.5 s, and 1,000 in 100 s.
    long, moment = Report(batch_size=8, total_steps=10_000), 0.0
    for step in range(1, 2001):
        told(long, (step, moment))
        moment += 0.5 if step < 1000 else 0.1
    assert long.steps_per_second() == pytest.approx(10)
    assert long.outcome().properties()["examples_per_second"] == pytest.approx(8 * 1999 / 599.5)
    # One report gives no pace.
    properties = told(Report(batch_size=8, total_steps=1), (1, 1)).outcome().properties()
    assert properties["last_step"] == 1
    assert "examples_per_second" not in properties


def test_the_cost_of_a_failure_is_known_even_if_the_restart_failed():
    report = told(Report(batch_size=8, total_steps=100), (78, 1))
    report.restarted(Restart("worker-0 was killed", "all tasks were started again", 80))
    report.restarted(Restart("chief-0 was killed", "all tasks were started again", -1))
    told(report, (50, 2), (100, 3))
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
    assert [outcome.properties()[name] for name in ("restarts", "lost_steps")] == [1, 7]
    assert [each["cause"] for each in json.loads(outcome.history())] == ["ps-0 was killed", "chief-0 failed"]


BATCH = 10


def task(kind: str = CHIEF, index: int = 0) -> TaskSpec:
    return TaskSpec(kind, index, 1, supervisor_pid=os.getpid())


def step(number: int, time: float, cpu: float, peak_rss: float = 100) -> dict[str, Any]:
    return {"event": Event.STEP, "step": number, "time": time, "cpu": cpu, "peak_rss": peak_rss}


def add(cost: Cost, spec: TaskSpec, *events: dict[str, Any]) -> Cost:
    for event in events:
        cost.record(spec, event)
    return cost


def test_the_first_step_and_evaluations_do_not_count():
    events = [
        {"event": Event.STARTED},
        step(0, 0, 0),
        step(1, 50, 50),  # builds
        step(11, 52, 53),
        step(21, 54, 56),
        {"event": Event.EVALUATING},
        {"event": Event.EVALUATED},
        {**step(21, 90, 90), "total": 40},  # a new session
        step(22, 95, 95),
        step(32, 97, 98, peak_rss=300),
    ]
    found = add(Cost(), task(), *events).properties(BATCH)
    assert found == {
        "steady_seconds": 6.0,
        "steady_examples_per_second": 30 * BATCH / 6,
        "cpu_micros_per_example": pytest.approx(1e6 * 9 / (30 * BATCH)),
        "peak_rss": 300,
    }


def test_steps_between_two_evaluations_count():
    evaluation = ({"event": Event.EVALUATING}, {"event": Event.EVALUATED})
    events = [step(0, 0, 0), step(1, 50, 50), *evaluation, step(11, 52, 53), step(21, 54, 56), *evaluation]
    found = add(Cost(), task(), {"event": Event.STARTED}, *events, step(30, 99, 99)).properties(BATCH)
    assert found["steady_seconds"] == 2.0
    assert found["cpu_micros_per_example"] == pytest.approx(1e6 * 3 / (10 * BATCH))


def test_workers_add_up_and_a_restart_begins_anew():
    cost = Cost()
    for spec in (task(), task(WORKER)):
        add(cost, spec, step(0, 0, 0), step(1, 1, 1), step(5, 2, 3), {"event": Event.STARTED})
        # Another process: its clock is at 0 again.
        add(cost, spec, step(5, 9, 0), step(6, 10, 1), step(10, 11, 3))
    add(cost, task(EVALUATOR), step(0, 0, 0), step(1, 1, 100), step(9, 2, 900))
    found = cost.properties(BATCH)
    assert found["cpu_micros_per_example"] == pytest.approx(2 * 1e6 * 4 / (8 * BATCH))
    assert found["steady_examples_per_second"] == pytest.approx(8 * BATCH / 2)
    assert found["peak_rss"] == 200


def test_unknown_measurements_are_left_out():
    assert Cost().properties(BATCH) == {}
    short = add(Cost(), task(), step(0, 0, 0), step(1, 1, 1))
    assert short.properties(BATCH) == {}
    steps = [step(0, 0, 0), step(1, 1, 1), step(5, 2, 3)]
    assert add(Cost(), task(), *steps).properties(None) == {"peak_rss": 100}
    with_server = add(Cost(), task(PS), {"event": Event.SERVING})
    assert set(add(with_server, task(), *steps).properties(BATCH)) == {"steady_seconds", "steady_examples_per_second"}


def test_a_task_reports_its_cpu_time_and_memory(tmp_path):
    path = str(tmp_path / "progress.jsonl")
    ProgressWriter(path).write(Event.STEP, step=3)
    ProgressWriter(path).write(Event.TRAINED)
    first, last = ProgressReader(path).read()
    assert first["cpu"] > 0
    assert 1 << 20 < first["peak_rss"] < 1 << 40
    assert "cpu" not in last


# A child that computes, then one that has ended; the name of the process may hold anything.
COMPUTES = """
import subprocess, sys
with open("/proc/self/comm", "w") as file:
    file.write("a) b (c d")
spin = "import time\\nwhile time.process_time() < 0.6: pass\\n"
child = subprocess.Popen([sys.executable, "-c", spin + "time.sleep(60)"], start_new_session=True)
subprocess.run([sys.executable, "-c", spin])
sys.stdin.read()
child.kill()
"""


def test_the_cpu_time_of_a_process_and_its_descendants_is_counted():
    before = cpu_seconds(os.getpid())
    with subprocess.Popen([sys.executable, "-c", COMPUTES], stdin=subprocess.PIPE) as process:
        while (found := cpu_seconds(process.pid)) < 1.0:
            assert process.poll() is None
            time.sleep(0.05)
        assert found < 5
        assert cpu_seconds(os.getpid()) - before >= 1.0
    assert cpu_seconds(process.pid) == 0
