"""When the tasks of an attempt are done, late or failed, with scripted tasks."""

from __future__ import annotations

import dataclasses
import time
from typing import Any, Optional

import pytest

from tfx_estimator.components.trainer.protocol.events import Event
from tfx_estimator.components.trainer.protocol.task_spec import TaskSpec
from tfx_estimator.components.trainer.supervisor.failure import Failure
from tfx_estimator.components.trainer.supervisor.group import Group
from tfx_estimator.pipeline.base.errors import UserCodeError

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("clock")]

STALL = 60.0


@dataclasses.dataclass
class Task:
    """Stands in for a process."""

    task_spec: TaskSpec
    code: Optional[int] = None
    done: int = -1
    quiet: float = 0.0
    cpu: float = 0.0
    printed: int = 0
    gone: bool = False
    started: float = dataclasses.field(default_factory=lambda: time.monotonic())
    new_events: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    @property
    def name(self) -> str:
        return self.task_spec.name

    def events(self) -> list[dict[str, Any]]:
        events, self.new_events = self.new_events, []
        return events

    def report(self, event: str) -> None:
        self.new_events.append({"event": Event(event)})

    def step(self) -> int:
        return self.done

    def silent(self) -> float:
        return self.quiet

    def log_size(self) -> int:
        return self.printed

    def cpu_seconds(self) -> float:
        return self.cpu

    def tail(self) -> str:
        return ""

    def error(self) -> None:
        return None

    def exited_early(self) -> bool:
        return self.gone

    def users_frames(self) -> list[str]:
        return ['  File "own.py", line 5, in model_fn']

    def kill(self) -> None:
        self.code = -9

    @property
    def files(self) -> Any:
        return self


Task.log, Task.folder = "the log", "logs"  # type: ignore[attr-defined]


def start(
    *kinds: str, stall_timeout: float = STALL, serving: frozenset[str] = frozenset({"ps"}), event: str = ""
) -> tuple[Group, dict[str, Task]]:
    tasks: dict[str, Task] = {}

    def run(task_spec: TaskSpec) -> Task:
        return tasks.setdefault(task_spec.name, Task(task_spec))

    made = Group(run, 10.0, stall_timeout, lambda task_spec, event: None, serving)  # type: ignore[arg-type]
    made.start([TaskSpec(kind, kinds[:index].count(kind), 1) for index, kind in enumerate(kinds)])
    for task in tasks.values() if event else ():
        task.report(event)
    return made, tasks


def failed(group: Group) -> Failure:
    failure = group.poll()
    assert failure
    return failure


def done(group: Group) -> bool:
    """Whether its work is done; polls it first, without a failure."""
    assert group.poll() is None
    return group.done()


def test_a_lone_parameter_server_serves_until_it_is_killed():
    group, _ = start("ps", event="serving")
    assert not done(group)


def test_a_cluster_with_serving_workers_is_done_with_its_chief():
    serving = frozenset({"ps", "worker"})
    group, tasks = start("chief", "worker", "ps", serving=serving)
    assert not done(group)
    tasks["chief-0"].code = 0
    assert done(group)
    # In an external cluster its process may end.
    group, tasks = start("worker", serving=serving)
    assert not done(group)
    tasks["worker-0"].code = 0
    assert done(group)


def test_a_stop_does_not_wait_for_serving_workers():
    serving = frozenset({"ps", "worker"})
    group, tasks = start("chief", "worker", "ps", serving=serving)
    tasks["chief-0"].report("step")
    group.poll()
    assert group.trains()
    assert not group.trainers_ended()
    tasks["chief-0"].code = 75
    assert group.trainers_ended()
    # Other workers do their own steps.
    group, tasks = start("chief", "worker", "ps")
    tasks["chief-0"].code = 75
    assert not group.trainers_ended()
    tasks["worker-0"].code = 75
    assert group.trainers_ended()


def test_a_worker_serving_an_external_chief_does_not_stall_without_steps(clock):
    group, tasks = start("worker", serving=frozenset({"ps", "worker"}))
    tasks["worker-0"].report("serving")
    group.poll()
    clock.now += 2 * STALL
    tasks["worker-0"].quiet = STALL
    assert group.poll() is None
    tasks["worker-0"].quiet += 1
    assert failed(group).task == "worker-0"


@pytest.mark.parametrize("serving", [("ps",), ("ps", "worker")])
def test_a_hung_parameter_server_is_blamed_for_a_waiting_training(clock, serving):
    group, tasks = start("chief", "worker", "ps", serving=frozenset(serving))
    for name, task in tasks.items():
        task.report("step" if name == "chief-0" else "serving")
    group.poll()
    clock.now += STALL
    tasks["ps-0"].quiet = 6.0
    assert group.poll() is None
    clock.now += 1
    # The parameter server's own deadline is not over yet: it was silent for less than stall_timeout.
    assert failed(group).task == "ps-0"
    # A short silence is no reason to blame it.
    for quiet in (5.0, 0.0):
        tasks["ps-0"].quiet = quiet
        assert failed(group).task == "chief-0"


def test_a_hung_worker_is_blamed_before_a_silent_chief_that_waits_for_it():
    group, tasks = start("chief", "worker", "worker", "ps", serving=frozenset({"ps", "worker"}))
    for name, task in tasks.items():
        task.report("step" if name == "chief-0" else "serving")
    group.poll()
    # TensorFlow holds the chief's GIL; its last heartbeat came before the worker's.
    tasks["chief-0"].quiet, tasks["worker-1"].quiet = STALL + 1, STALL - 1
    assert failed(group).task == "worker-1"
    tasks["worker-1"].quiet = 0.0
    assert failed(group).task == "chief-0"


def test_a_waiting_evaluator_does_not_hold_up_the_end_of_training(clock):
    group, tasks = start("chief", "worker", "evaluator", stall_timeout=600.0)
    for name, task in tasks.items():
        task.report("evaluating" if name == "evaluator-0" else "step")
    tasks["chief-0"].code = tasks["worker-0"].code = 0
    group.poll()
    clock.now += 100
    assert not done(group)
    tasks["evaluator-0"].report("evaluated")
    group.poll()
    clock.now += 45
    assert not done(group)
    clock.now += 1
    assert done(group)


def test_an_exporting_evaluator_holds_up_the_end_of_training(clock):
    group, tasks = start("chief", "evaluator", stall_timeout=600.0)
    tasks["chief-0"].code = 0
    for event in ("evaluated", "exporting"):
        tasks["evaluator-0"].report(event)
    group.poll()
    clock.now += 600
    assert not done(group)


def test_repeated_steps_after_a_restore_are_progress(clock):
    group, tasks = start("chief", "worker", "ps", event="step")
    for step in (100, 10, 11, 12, 13):
        tasks["chief-0"].done = tasks["worker-0"].done = step
        for _ in range(2):
            assert group.poll() is None
            clock.now += 0.4 * STALL
        assert group.step == step
    clock.now += 0.2 * STALL
    assert group.poll() is None
    clock.now += 1
    assert "made no progress" in failed(group).cause


def test_a_hung_task_is_blamed_and_not_those_that_wait_for_it():
    group, tasks = start("chief", "worker")
    for task in tasks.values():
        task.report("started")
        task.report("step")
        task.done = 5
    group.poll()
    tasks["worker-0"].quiet = STALL
    assert group.poll() is None
    tasks["worker-0"].quiet += 1
    assert failed(group).task == "worker-0"


@pytest.mark.parametrize("kinds", [("chief", "worker"), ("chief", "worker", "ps"), ("chief", "worker", "worker")])
def test_a_peer_killed_after_the_chief_has_finished_is_no_failure(kinds):
    group, tasks = start(*kinds)
    for task in tasks.values():
        task.report("step")
        task.code = -9
    tasks["chief-0"].code = 0
    assert done(group)


@pytest.mark.parametrize("name", ["chief-0", "worker-0"])
def test_an_early_exit_with_code_0_is_a_user_code_error(name):
    group, tasks = start("chief", "worker", event="step")
    tasks[name].code, tasks[name].gone = 0, True
    assert not group.done()
    failure = failed(group)
    assert (failure.task, failure.retryable) == (name, False)
    assert isinstance(failure.error, UserCodeError)
    assert "line 5, in model_fn" in failure.error.what
    assert not group.done()


def test_an_early_exit_after_the_chief_or_of_a_run_fn_is_no_failure():
    group, tasks = start("chief", "worker")
    for task in tasks.values():
        task.report("step")
        task.code = 0
    tasks["worker-0"].gone = True
    assert done(group)
    # It may have saved its model; this is checked at the end.
    group, tasks = start("chief", event="running")
    tasks["chief-0"].code, tasks["chief-0"].gone = 0, True
    assert done(group)


def test_a_worker_that_hangs_after_the_chief_has_finished_is_not_late(clock):
    group, tasks = start("chief", "worker", "worker")
    tasks["worker-0"].report("step")
    tasks["chief-0"].code = 0
    tasks["worker-0"].quiet = 10 * STALL
    group.poll()
    clock.now += 2 * STALL
    assert group.poll() is None


def test_code_that_reports_no_progress_stalls_only_without_cpu_use(clock):
    group, tasks = start("chief", "worker", event="running")
    # The worker waits for the chief, which holds its GIL.
    for _ in range(10):
        clock.now += STALL / 4
        tasks["chief-0"].cpu += STALL / 4
        tasks["chief-0"].quiet += STALL / 4
        assert group.poll() is None
    tasks["chief-0"].quiet = 0.0
    began = clock.now
    while (failure := group.poll()) is None and clock.now < began + 2 * STALL:
        clock.now += 0.5
        # A heartbeat, and the like.
        tasks["chief-0"].cpu += 0.005
    assert clock.now == began + STALL + 0.5
    assert failure.cause.startswith("made no progress")


def test_code_that_computes_without_output_stalls_after_six_stall_timeouts(clock):
    group, tasks = start("chief")
    task = tasks["chief-0"]
    task.report("running")
    # A notice does not end the RUNNING stage.
    task.report("noticed")
    for _ in range(80):
        clock.now += STALL / 10
        task.cpu += STALL / 10
        task.printed += 1
        assert group.poll() is None
    printed = clock.now
    while (failure := group.poll()) is None and clock.now < printed + 10 * STALL:
        clock.now += STALL / 10
        task.cpu += STALL / 10
    assert clock.now == printed + 6 * STALL
    assert failure.cause.startswith("made no progress")


def test_a_hung_task_is_blamed_although_it_computed_just_before(clock, monkeypatch):
    group, tasks = start("chief", "worker", event="running")
    tasks["worker-0"].cpu = 1e12
    group.poll()
    tasks["worker-0"].quiet = 6.0
    error = {"type": "UnavailableError", "what": "the other one has gone", "todo": "", "where": "", "peer": True}
    monkeypatch.setattr(tasks["chief-0"], "error", lambda: error)
    tasks["chief-0"].code = 1
    assert group.poll() is None
    clock.now += 5
    assert group.poll() is None
    clock.now += 1
    assert failed(group).task == "worker-0"


def test_a_task_that_does_not_start_is_reported(clock):
    group, _ = start("chief")
    group.poll()
    clock.now += 11
    failure = failed(group)
    assert failure.cause == "did not start training for 11 s"
    assert failure.error.what.startswith("task chief-0 did not start training for 11 s")
    assert "trainer.start_timeout" in failure.error.expected


def test_a_waiting_evaluator_makes_no_progress(clock):
    group, tasks = start("evaluator")
    for event, works in (("started", False), ("waiting", False), ("evaluating", True), ("evaluated", True)):
        tasks["evaluator-0"].report(event)
        clock.now += 1
        group.poll()
        assert group.last_progress == (clock.now if works else 0.0)


def test_only_an_error_of_its_own_fails_an_evaluator_that_ends_after_the_chief():
    for code, is_failure in ((-9, False), (1, True)):
        group, tasks = start("chief", "worker", "evaluator")
        tasks["chief-0"].code = tasks["worker-0"].code = 0
        tasks["evaluator-0"].code = code
        failure = group.poll()
        assert (failure is not None) is is_failure
        assert failure is None or (failure.task, failure.retryable) == ("evaluator-0", False)
        assert group.done() is not is_failure
