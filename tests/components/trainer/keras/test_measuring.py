"""What a task of a Keras training measures between two executions."""

from __future__ import annotations

import os

import pytest

from tfx_estimator.components.trainer.keras.measuring import Meter
from tfx_estimator.components.trainer.protocol.measurement import MEASURE, TaskMeasurement, Window
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, PS, WORKER, TaskSpec

pytestmark = pytest.mark.unit


def test_nothing_is_measured_unasked_nor_in_a_task_without_steps(monkeypatch, tmp_path):
    monkeypatch.delenv(MEASURE, raising=False)
    assert Meter.of_environment(TaskSpec(CHIEF, 0, 1), 32) is None
    monkeypatch.setenv(MEASURE, Window(str(tmp_path), 10, 50, [0]).to_environment())
    assert Meter.of_environment(TaskSpec(PS, 0, 1), 32) is None
    assert Meter.of_environment(TaskSpec(CHIEF, 0, 1), 32) is not None


def test_the_window_begins_once_all_have_begun_and_holds_whole_executions(tmp_path):
    window = Window(str(tmp_path), warmup=10, steps=50, cores=[0], trainers=2)
    chief = Meter(window, TaskSpec(CHIEF, 0, 1), examples_per_step=32)
    chief.done(20)
    chief.done(40)
    assert not os.path.exists(window.edge("begin"))
    Meter(window, TaskSpec(WORKER, 0, 1), examples_per_step=32).done(20)
    chief.done(60)
    chief.done(80)
    assert os.path.exists(window.edge("begin"))
    chief.done(120)
    assert not os.path.exists(window.edge("end"))
    chief.done(140)
    chief.done(160)
    (found,) = TaskMeasurement.load_all(str(tmp_path))
    assert (found.task, found.steps, found.own_steps, found.examples) == ("chief-0", 60, 60, 60 * 32)
    assert found.cpu >= 0
    assert found.peak_rss > found.pss > 0
    assert os.path.exists(window.edge("end"))
