"""The number of steps of an execution, and the actions after it."""

from __future__ import annotations

import itertools
import json

import pytest

from tests.components.trainer.noting import Noting
from tests.refusals import refused
from tests.root import ROOT, finish, start_python
from tfx_estimator.components.trainer.cluster.plan import free_ports
from tfx_estimator.components.trainer.keras import watch as module
from tfx_estimator.components.trainer.keras.watch import Watch
from tfx_estimator.components.trainer.observers import Reporter
from tfx_estimator.components.trainer.protocol.events import (
    Event,
    PeerLostError,
    ProgressReader,
    ProgressWriter,
    request_stop,
)
from tfx_estimator.pipeline.base.errors import TrainingError
from tfx_estimator.pipeline.config.trainer import TrainerSection


class Saves(list):
    save = list.append


class Tasks:
    """Makes the other tasks agree with this one, except for values that a test sets.

    Args:
        others: What another task says.
    """

    def __init__(self, others: dict[int, float]) -> None:
        self.others = others
        self.values_of_tasks: list[tuple[float, ...]] = []

    def mean(self, *values: float) -> tuple[float, ...]:
        self.values_of_tasks.append(values)
        other = [self.others.get(index, value) for index, value in enumerate(values)]
        return tuple((one + two) / 2 for one, two in zip(values, other))


@pytest.fixture
def make(tmp_path, monkeypatch):
    def make(others: dict[int, float] | None = None, observers=(), begin=0, **options) -> tuple[Watch, Saves]:
        taken = {name: options.pop(name) for name in ("fixed", "averaging", "ends") if name in options}
        section = TrainerSection(model="mnist_cnn", **{"train_steps": 105, "log_every_steps": 30, **options})
        saves, tasks = Saves(), Tasks(others or {})
        reporter = Reporter(ProgressWriter(str(tmp_path / "progress")), section.train_steps)
        monkeypatch.setattr(module, "mean_over_tasks", lambda strategy: tasks.mean)
        made = [reporter, *observers]
        watch = Watch(section, saves, None, str(tmp_path / "stop"), at_once=20, observers=made, **taken)
        if begin is not None:
            watch.begin(begin)
        return watch, saves

    return make


def run(watch: Watch, clock, step_seconds: float, first_seconds: float = 5.0) -> list[int]:
    ends = []
    while not watch.ended:
        steps = watch.next_steps()
        clock.now += step_seconds * steps if ends else first_seconds
        watch.done(steps, {"loss": 1.0})
        ends.append(watch.step)
    return ends


@pytest.mark.parametrize(
    ("start", "ends"),
    [(0, [1, 2, 4, 8, 16, 30, 46, 50, 60, 80, 90, 100, 105]), (50, [51, 52, 54, 58, 60, 68, 84, 90, 100, 105])],
)
def test_executions_grow_to_the_declared_length_and_end_where_something_is_due(make, clock, tmp_path, start, ends):
    watch, saves = make(save_checkpoints_steps=50, begin=start)
    assert run(watch, clock, 0.001) == ends
    assert saves == [each for each in (50, 100, 105) if each > start]
    assert not watch.stopped
    events = ProgressReader(str(tmp_path / "progress")).read()
    assert [each["step"] for each in events if each["event"] is Event.STEP][-1] == 105
    assert events[0]["total"] == 105


class Averaging:
    def __init__(self) -> None:
        self.steps = []

    def before_checkpoint(self) -> None:
        self.steps.append((self.watch.step, len(self.saves)))


def test_weights_are_averaged_before_each_checkpoint_between_the_intervals(make, clock):
    averaging = Averaging()
    options = {"save_checkpoints_steps": 20, "sync_every": 8, "train_steps": 60}
    averaging.watch, averaging.saves = make(averaging=averaging, begin=None, **options)
    averaging.watch.begin(0)
    # At the interval, executions average in their graph: none is shorter because of it.
    assert run(averaging.watch, clock, 0.001) == [1, 2, 4, 8, 16, 20, 30, 40, 60]
    assert averaging.steps == [(20, 0), (60, 2)]
    assert averaging.saves == [20, 40, 60]


def test_independently_training_tasks_end_together_if_one_diverges(make, clock):
    options = {"sync_every": {"steps": 8}, "averaging": object()}
    with pytest.raises(TrainingError, match="loss of a task, up to step 0, is not a number"):
        make(others={3: 1.0}, save_checkpoints_steps=50, **options)
    watch, saves = make(save_checkpoints_steps=5, **options)
    watch._agree_at = 100
    watch.done(1, {"loss": float("nan")})
    with pytest.raises(TrainingError, match="up to step 5, is not a number"):
        watch.done(4, {"loss": 1.0})
    assert saves == []


@pytest.mark.parametrize(("step_seconds", "most"), [(0.04, 12), (0.4, 1), (3.0, 1)])
def test_no_execution_is_much_longer_than_half_a_second(make, clock, step_seconds, most):
    watch, _ = make(save_checkpoints_steps=100, log_every_steps=100)
    ends = run(watch, clock, step_seconds)
    assert max(after - before for before, after in itertools.pairwise(ends)) == most


def test_with_parameter_servers_executions_have_a_constant_length_of_at_most_ten_seconds(make, clock):
    watch, saves = make(fixed=True, save_checkpoints_steps=50)
    # Except the first, whose duration is unknown, and the next one, since the first includes graph building.
    assert run(watch, clock, 0.1) == [5, 10, 20, 30, 40, 50, 60, 80, 90, 100, 105]
    assert saves == [50, 100, 105]
    watch, saves = make(fixed=True, save_checkpoints_steps=50)
    ends = run(watch, clock, 3.0, 30.0)
    # Fractions of 20, so that they end where something is due.
    assert max(after - before for before, after in itertools.pairwise(ends)) == 2
    assert saves == [50, 100, 105]


def fit(watch, clock, step_seconds, build_seconds):
    """Like `fit_by_workers`, whose epochs all have the first one's length; returns the start of each call."""
    begins, ends = [], []
    while not watch.ended:
        steps = watch.next_steps()
        begins.append(watch.step)
        for epoch in range(watch.whole_executions(steps) if steps == watch.stretch else 1):
            clock.now += step_seconds * steps + (build_seconds if epoch == 0 else 0)
            watch.done(steps, {"loss": 1.0}, paced=epoch > 0)
            ends.append(watch.step)
    return begins, ends


@pytest.mark.parametrize(
    ("declared", "seconds", "begins", "ends", "saved"),
    [
        # Graph building at the start makes no stretch shorter.
        ((200, 20), (0.01, 60.0), [0, 10, 20], [5, 10, *range(20, 1001, 20)], [200, 400, 600, 800, 1000]),
        # A slow fit has short stretches in a single call.
        ((200, 20), (1.5, 60.0), [0, 10], [5, 10, *range(15, 1001, 5)], [200, 400, 600, 800, 1000]),
        # Stretches that do not divide the interval end at a checkpoint.
        ((470, 1000), (0.01, 5.0), [0, 10, 20, 460, 470, 480, 940], None, [470, 940, 1000]),
    ],
)
def test_the_stretches_of_a_fit(make, clock, declared, seconds, begins, ends, saved):
    save, log = declared
    watch, saves = make(fixed=True, train_steps=1000, save_checkpoints_steps=save, log_every_steps=log)
    began, ended = fit(watch, clock, *seconds)
    assert (began, saves) == (begins, saved)
    assert ends in (None, ended)


def test_a_machine_that_becomes_slower_has_shorter_executions(make, clock):
    watch, _ = make(train_steps=2000, save_checkpoints_steps=2000, log_every_steps=2000)
    while watch.step < 1000:
        steps = watch.next_steps()
        clock.now += 0.01 * steps
        watch.done(steps, {"loss": 1.0})
    assert steps == 20
    *_, before, last = run(watch, clock, 0.5, 0.5)[:10]
    assert last - before == 1


def test_it_uses_the_pace_of_all_tasks(make, clock):
    watch, _ = make({0: 0.0985}, train_steps=1000, save_checkpoints_steps=1000, log_every_steps=1000)
    ends = run(watch, clock, 0.001)
    assert ends[-2] - ends[-3] == 10


def test_it_stops_soon_after_the_requested_step_and_saves(make, clock, tmp_path):
    watch, saves = make(save_checkpoints_steps=50, log_every_steps=100)
    request_stop(str(tmp_path / "stop"), 33)
    assert run(watch, clock, 0.05) == [1, 2, 4, 8, 16, 26, 36]
    assert watch.stopped
    assert saves == [36]


def test_it_stops_if_only_another_task_has_seen_the_request(make, clock):
    watch, saves = make({1: 1.0}, save_checkpoints_steps=50, begin=7)
    assert watch.stopped
    assert saves == []


def test_a_finished_training_is_not_stopped(make, tmp_path):
    request_stop(str(tmp_path / "stop"), 0)
    watch, saves = make(save_checkpoints_steps=50, begin=105)
    assert watch.ended
    assert not watch.stopped
    assert saves == []


def test_it_ends_after_a_deciding_checkpoint_but_a_stop_skips_the_decision(make, clock, tmp_path):
    answers = [False, True]
    watch, saves = make(save_checkpoints_steps=30, log_every_steps=100, ends=lambda: answers.pop(0))
    assert run(watch, clock, 0.05)[-1] == 60
    assert (saves, watch.ended_early, watch.stopped) == ([30, 60], True, False)
    request_stop(str(tmp_path / "stop"), 20)
    watch, saves = make(save_checkpoints_steps=30, log_every_steps=100, ends=pytest.fail)
    run(watch, clock, 0.05)
    assert (saves, watch.ended_early, watch.stopped) == ([26], False, True)
    watch.begin(60, ended_early=True)
    assert watch.ended


def test_tasks_that_begin_at_different_steps_do_not_train(make):
    with pytest.raises(PeerLostError, match=r"starts at step 50.*one training folder"):
        make({2: 40.0}, begin=50)


def test_a_nan_loss_ends_training_without_a_checkpoint(make, clock):
    watch, saves = make(save_checkpoints_steps=1, begin=50)
    with refused(TrainingError, "loss of step 51 is not a number", todo="learning_rate"):
        watch.done(watch.next_steps(), {"loss": float("nan")})
    assert saves == []


def test_observers_are_called_before_a_checkpoint_and_before_the_actions_after_it(make, clock):
    observer = Noting(50, 100)
    watch, observer.saves = make(save_checkpoints_steps=50, observers=[observer])
    run(watch, clock, 0.001)
    assert [each for each in observer.called if each[1] in (50, 100)] == [
        ("after_step", 50, 0),
        ("before_save", 50, 0),
        ("before_step", 50, 1),
        ("after_step", 100, 1),
        ("before_save", 100, 1),
        ("before_step", 100, 2),
    ]
    assert [observer.called[place][:2] for place in (0, -1)] == [("begin", 0), ("end", 105)]


def test_executions_of_the_same_length_follow_one_another_up_to_the_edge_of_a_profile(make, clock):
    options = {"fixed": True, "train_steps": 100, "save_checkpoints_steps": 20, "log_every_steps": 20}
    watch, _ = make(**options)
    assert watch.whole_executions(20) == 2
    assert fit(watch, clock, 0.1, 0.0)[1] == [5, 10, 20, 40, 60, 80, 100]
    watch.begin(0)
    assert watch.whole_executions(20) == 5
    watch._observers.append(Noting(53, 57))
    watch.begin(0)
    assert watch.whole_executions(20) == 2
    assert fit(watch, clock, 0.1, 0.0)[1] == [20, 40, 53, 57, 60, 80, 100]


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(240)
def test_two_tasks_stop_after_the_same_step_at_any_moment(tmp_path):
    addresses, rounds = ",".join(f"localhost:{port}" for port in free_ports(2)), 40
    words = ("-m", "tests.components.trainer.keras.stopping")
    tasks = [start_python(*words, str(index), addresses, str(tmp_path), str(rounds), cwd=ROOT) for index in range(2)]
    chief, worker = (json.loads(out.splitlines()[-1]) for out in finish(*tasks))
    assert chief == worker
    assert len(chief) == rounds
    # The checkpoint is of the last step, which differs between rounds.
    assert all(step == saved for step, saved in chief)
    assert len({step for step, _ in chief}) > 4
