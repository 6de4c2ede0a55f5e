"""What a step costs, of what tasks report."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tfx_estimator.components.trainer.protocol.events import Event, ProgressReader, ProgressWriter
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, EVALUATOR, PS, WORKER, TaskSpec
from tfx_estimator.components.trainer.supervisor.report import Cost

pytestmark = pytest.mark.unit

BATCH = 10


def task(kind: str = CHIEF, index: int = 0) -> TaskSpec:
    return TaskSpec(kind, index, 1, supervisor_pid=os.getpid())


def step(number: int, time: float, cpu: float, peak_rss: float = 100) -> dict[str, Any]:
    return {"event": Event.STEP, "step": number, "time": time, "cpu": cpu, "peak_rss": peak_rss}


def hear(cost: Cost, spec: TaskSpec, *events: dict[str, Any]) -> Cost:
    for event in events:
        cost.hear(spec, event)
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
        step(21, 90, 90),  # a new session
        step(22, 95, 95),
        step(32, 97, 98, peak_rss=300),
    ]
    found = hear(Cost(), task(), *events).properties(BATCH)
    assert found == {
        "steady_seconds": 6.0,
        "steady_examples_per_second": 30 * BATCH / 6,
        "cpu_micros_per_example": pytest.approx(1e6 * 9 / (30 * BATCH)),
        "peak_rss": 300,
    }


def test_workers_add_up_and_a_restart_begins_anew():
    cost = Cost()
    for spec in (task(), task(WORKER)):
        hear(cost, spec, step(0, 0, 0), step(1, 1, 1), step(5, 2, 3), {"event": Event.STARTED})
        # Another process: its clock is at 0 again.
        hear(cost, spec, step(5, 9, 0), step(6, 10, 1), step(10, 11, 3))
    hear(cost, task(EVALUATOR), step(0, 0, 0), step(1, 1, 100), step(9, 2, 900))
    found = cost.properties(BATCH)
    assert found["cpu_micros_per_example"] == pytest.approx(2 * 1e6 * 4 / (8 * BATCH))
    assert found["steady_examples_per_second"] == pytest.approx(8 * BATCH / 2)
    assert found["peak_rss"] == 200


def test_what_is_not_known_is_not_told():
    assert Cost().properties(BATCH) == {}
    short = hear(Cost(), task(), step(0, 0, 0), step(1, 1, 1))
    assert short.properties(BATCH) == {}
    steps = [step(0, 0, 0), step(1, 1, 1), step(5, 2, 3)]
    assert hear(Cost(), task(), *steps).properties(None) == {"peak_rss": 100}
    with_server = hear(Cost(), task(PS), {"event": Event.SERVING})
    assert set(hear(with_server, task(), *steps).properties(BATCH)) == {"steady_seconds", "steady_examples_per_second"}


def test_a_task_tells_what_it_has_used(tmp_path):
    path = str(tmp_path / "progress.jsonl")
    ProgressWriter(path).write(Event.STEP, step=3)
    ProgressWriter(path).write(Event.TRAINED)
    first, last = ProgressReader(path).read()
    assert first["cpu"] > 0
    assert 1 << 20 < first["peak_rss"] < 1 << 40
    assert "cpu" not in last
