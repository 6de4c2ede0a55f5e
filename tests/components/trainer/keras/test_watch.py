"""How many steps an execution has, and what is done after it."""

from __future__ import annotations

import pytest

from tfx_estimator.components.trainer.keras.watch import Watch
from tfx_estimator.components.trainer.protocol.events import Event, ProgressReader, ProgressWriter
from tfx_estimator.components.trainer.protocol.stop import ask_to_stop
from tfx_estimator.pipeline.config.trainer import TrainerSection

pytestmark = pytest.mark.unit


class Saves(list):
    save = list.append


@pytest.fixture
def make(tmp_path):
    def make(at_once: int, **values) -> tuple[Watch, Saves]:
        section = TrainerSection(model="mnist_cnn", **values)
        saves = Saves()
        progress = ProgressWriter(str(tmp_path / "progress"))
        return Watch(section, saves, None, progress, str(tmp_path / "stop"), at_once), saves

    return make


def run(watch: Watch) -> list[int]:
    ends = []
    while not watch.ended:
        watch.done(watch.next_steps(), {"loss": 1.0})
        ends.append(watch.step)
    return ends


def test_executions_end_where_something_is_due_and_at_the_last_step(make, tmp_path):
    watch, saves = make(20, train_steps=105, save_checkpoints_steps=50, log_every_steps=30)
    watch.begin(0)
    assert run(watch) == [20, 30, 40, 50, 60, 80, 90, 100, 105]
    assert saves == [50, 100, 105]
    assert not watch.stopped
    events = ProgressReader(str(tmp_path / "progress")).read()
    assert [each["step"] for each in events if each["event"] is Event.STEP][-1] == 105
    assert events[0]["total"] == 105


def test_the_executions_after_a_restart_end_at_the_same_steps(make):
    watch, saves = make(20, train_steps=105, save_checkpoints_steps=50, log_every_steps=30)
    watch.begin(50)
    assert run(watch) == [60, 80, 90, 100, 105]
    assert saves == [100, 105]


def test_it_stops_at_the_first_execution_that_reaches_the_asked_step_and_saves(make, tmp_path):
    watch, saves = make(20, train_steps=105, save_checkpoints_steps=50, log_every_steps=100)
    watch.begin(0)
    ask_to_stop(str(tmp_path / "stop"), 33)
    assert run(watch) == [20, 40]
    assert watch.stopped
    assert saves == [40]


def test_what_is_done_is_not_stopped(make, tmp_path):
    watch, saves = make(20, train_steps=105, save_checkpoints_steps=50, log_every_steps=100)
    ask_to_stop(str(tmp_path / "stop"), 0)
    watch.begin(105)
    assert watch.ended
    assert not watch.stopped
    assert saves == []


def test_it_ends_after_a_checkpoint_that_says_so_but_asks_none_that_is_to_stop(make, tmp_path):
    watch, saves = make(20, train_steps=105, save_checkpoints_steps=30, log_every_steps=100)
    asked = []
    watch._ends = lambda: asked.append(watch.step) or len(asked) == 2
    watch.begin(0)
    assert run(watch) == [20, 30, 40, 60]
    assert (asked, saves, watch.over, watch.stopped) == ([30, 60], [30, 60], True, False)
    ask_to_stop(str(tmp_path / "stop"), 30)
    watch, saves = make(20, train_steps=105, save_checkpoints_steps=30, log_every_steps=100)
    watch._ends = pytest.fail
    watch.begin(0)
    assert run(watch) == [20, 30]
    assert (saves, watch.over, watch.stopped) == ([30], False, True)
    watch.begin(60, over=True)
    assert watch.ended
