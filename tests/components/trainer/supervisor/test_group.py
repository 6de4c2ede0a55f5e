"""When the tasks of an attempt are done, late or failed, with tasks that do what the test says."""

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
    said: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    @property
    def name(self) -> str:
        return self.task_spec.name

    def events(self) -> list[dict[str, Any]]:
        said, self.said = self.said, []
        return said

    def say(self, event: str) -> None:
        self.said.append({"event": Event(event)})

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

    def left(self) -> bool:
        return self.gone

    def users_frames(self) -> list[str]:
        return ['  File "own.py", line 5, in model_fn']

    def kill(self) -> None:
        self.code = -9

    @property
    def files(self) -> Any:
        return self


Task.log = "the log"  # type: ignore[attr-defined]


def start(
    *kinds: str, stall_timeout: float = STALL, serving: frozenset[str] = frozenset({"ps"}), say: str = ""
) -> tuple[Group, dict[str, Task]]:
    tasks: dict[str, Task] = {}

    def run(task_spec: TaskSpec) -> Task:
        return tasks.setdefault(task_spec.name, Task(task_spec))

    made = Group(run, 10.0, stall_timeout, lambda task_spec, event: None, serving)  # type: ignore[arg-type]
    made.start([TaskSpec(kind, kinds[:index].count(kind), 1) for index, kind in enumerate(kinds)])
    for task in tasks.values() if say else ():
        task.say(say)
    return made, tasks


def failed(group: Group) -> Failure:
    failure = group.look()
    assert failure is not None
    return failure


def test_a_parameter_server_alone_serves_until_it_is_ended():
    group, _ = start("ps", say="serving")
    assert group.look() is None
    assert not group.done()


def test_a_cluster_whose_workers_serve_as_well_is_done_with_its_chief():
    serving = frozenset({"ps", "worker"})
    group, tasks = start("chief", "worker", "ps", serving=serving)
    group.look()
    assert not group.done()
    tasks["chief-0"].code = 0
    assert group.look() is None
    assert group.done()
    # In somebody else's cluster its process may end.
    group, tasks = start("worker", serving=serving)
    group.look()
    assert not group.done()
    tasks["worker-0"].code = 0
    group.look()
    assert group.done()


def test_workers_that_serve_are_not_waited_for_when_training_is_to_stop():
    serving = frozenset({"ps", "worker"})
    group, tasks = start("chief", "worker", "ps", serving=serving)
    tasks["chief-0"].say("step")
    group.look()
    assert group.trains()
    assert not group.trainers_ended()
    tasks["chief-0"].code = 75
    assert group.trainers_ended()
    # Others do steps of their own.
    group, tasks = start("chief", "worker", "ps")
    tasks["chief-0"].code = 75
    assert not group.trainers_ended()
    tasks["worker-0"].code = 75
    assert group.trainers_ended()


def test_a_worker_that_serves_somebody_else_s_chief_reports_no_steps_and_does_not_stall(clock):
    group, tasks = start("worker", serving=frozenset({"ps", "worker"}))
    tasks["worker-0"].say("serving")
    group.look()
    clock.now += 2 * STALL
    tasks["worker-0"].quiet = STALL
    assert group.look() is None
    tasks["worker-0"].quiet += 1
    assert failed(group).task == "worker-0"


@pytest.mark.parametrize("serving", [("ps",), ("ps", "worker")])
def test_of_a_training_that_waits_for_a_stopped_parameter_server_that_one_is_named(clock, serving):
    group, tasks = start("chief", "worker", "ps", serving=frozenset(serving))
    for name, task in tasks.items():
        task.say("step" if name == "chief-0" else "serving")
    group.look()
    clock.now += STALL
    tasks["ps-0"].quiet = 6.0
    assert group.look() is None
    clock.now += 1
    # The last step was done before: its own deadline is not over yet.
    assert failed(group).task == "ps-0"
    # Silence of a moment is nobody's fault.
    for quiet in (5.0, 0.0):
        tasks["ps-0"].quiet = quiet
        assert failed(group).task == "chief-0"


def test_a_chief_that_is_as_silent_as_the_stopped_worker_that_it_waits_for_is_not_named():
    group, tasks = start("chief", "worker", "worker", "ps", serving=frozenset({"ps", "worker"}))
    for name, task in tasks.items():
        task.say("step" if name == "chief-0" else "serving")
    group.look()
    # TensorFlow holds the chief's interpreter; its last sign of life came before the worker's.
    tasks["chief-0"].quiet, tasks["worker-1"].quiet = STALL + 1, STALL - 1
    assert failed(group).task == "worker-1"
    tasks["worker-1"].quiet = 0.0
    assert failed(group).task == "chief-0"


def test_an_evaluator_that_waits_for_a_checkpoint_that_never_comes_is_not_waited_for(clock):
    group, tasks = start("chief", "worker", "evaluator", stall_timeout=600.0)
    for name, task in tasks.items():
        task.say("evaluating" if name == "evaluator-0" else "step")
    tasks["chief-0"].code = tasks["worker-0"].code = 0
    group.look()
    clock.now += 100
    group.look()
    assert not group.done()
    tasks["evaluator-0"].say("evaluated")
    group.look()
    clock.now += 45
    group.look()
    assert not group.done()
    clock.now += 1
    group.look()
    assert group.done()


def test_one_that_exports_is_waited_for(clock):
    group, tasks = start("chief", "evaluator", stall_timeout=600.0)
    tasks["chief-0"].code = 0
    for event in ("evaluated", "exporting"):
        tasks["evaluator-0"].say(event)
    group.look()
    clock.now += 600
    assert group.look() is None
    assert not group.done()


def test_steps_done_again_after_a_step_back_are_progress(clock):
    group, tasks = start("chief", "worker", "ps", say="step")
    for step in (100, 10, 11, 12, 13):
        tasks["chief-0"].done = tasks["worker-0"].done = step
        for _ in range(2):
            assert group.look() is None
            clock.now += 0.4 * STALL
        assert group.step == step
    clock.now += 0.2 * STALL
    assert group.look() is None
    clock.now += 1
    assert "made no progress" in failed(group).cause


def test_one_that_stands_still_is_named_and_not_those_that_wait_for_it():
    group, tasks = start("chief", "worker")
    for task in tasks.values():
        task.say("started")
        task.say("step")
        task.done = 5
    group.look()
    tasks["worker-0"].quiet = STALL
    assert group.look() is None
    tasks["worker-0"].quiet += 1
    assert failed(group).task == "worker-0"


@pytest.mark.parametrize("kinds", [("chief", "worker"), ("chief", "worker", "ps"), ("chief", "worker", "worker")])
def test_what_becomes_of_the_others_after_a_finished_training_is_no_failure(kinds):
    group, tasks = start(*kinds)
    for task in tasks.values():
        task.say("step")
        task.code = -9
    tasks["chief-0"].code = 0
    assert group.look() is None
    assert group.done()


@pytest.mark.parametrize("name", ["chief-0", "worker-0"])
def test_one_that_leaves_as_if_its_work_were_done_is_the_users_fault(name):
    group, tasks = start("chief", "worker", say="step")
    tasks[name].code, tasks[name].gone = 0, True
    assert not group.done()
    failure = failed(group)
    assert (failure.task, failure.retryable) == (name, False)
    assert isinstance(failure.error, UserCodeError)
    assert "line 5, in model_fn" in failure.error.what
    assert not group.done()


def test_what_leaves_after_the_chief_or_out_of_a_run_fn_is_no_failure():
    group, tasks = start("chief", "worker")
    for task in tasks.values():
        task.say("step")
        task.code = 0
    tasks["worker-0"].gone = True
    assert group.look() is None
    assert group.done()
    # It may have saved its model; whether it has is looked at in the end.
    group, tasks = start("chief", say="running")
    tasks["chief-0"].code, tasks["chief-0"].gone = 0, True
    assert group.look() is None
    assert group.done()


def test_a_worker_that_stands_still_after_the_chief_is_not_late(clock):
    group, tasks = start("chief", "worker", "worker")
    tasks["worker-0"].say("step")
    tasks["chief-0"].code = 0
    tasks["worker-0"].quiet = 10 * STALL
    group.look()
    clock.now += 2 * STALL
    assert group.look() is None


def test_code_that_reports_nothing_stalls_only_where_it_computes_nothing_either(clock):
    group, tasks = start("chief", "worker", say="running")
    # The worker waits for the chief, which holds its interpreter.
    for _ in range(10):
        clock.now += STALL / 4
        tasks["chief-0"].cpu += STALL / 4
        tasks["chief-0"].quiet += STALL / 4
        assert group.look() is None
    tasks["chief-0"].quiet = 0.0
    began = clock.now
    while (failure := group.look()) is None and clock.now < began + 2 * STALL:
        clock.now += 0.5
        # A heartbeat, and the like.
        tasks["chief-0"].cpu += 0.005
    assert clock.now == began + STALL + 0.5
    assert failure is not None
    assert failure.cause.startswith("made no progress")


def test_code_that_computes_without_a_word_stalls_after_six_times_as_long(clock):
    group, tasks = start("chief")
    task = tasks["chief-0"]
    task.say("running")
    # It goes on to run after a word of ours.
    task.say("noticed")
    for _ in range(80):
        clock.now += STALL / 10
        task.cpu += STALL / 10
        task.printed += 1
        assert group.look() is None
    printed = clock.now
    while (failure := group.look()) is None and clock.now < printed + 10 * STALL:
        clock.now += STALL / 10
        task.cpu += STALL / 10
    assert clock.now == printed + 6 * STALL
    assert failure is not None
    assert failure.cause.startswith("made no progress")


def test_a_stopped_task_is_to_blame_although_it_has_computed_just_before(clock, monkeypatch):
    group, tasks = start("chief", "worker", say="running")
    tasks["worker-0"].cpu = 1e12
    group.look()
    tasks["worker-0"].quiet = 6.0
    said = {"type": "UnavailableError", "what": "the other one has gone", "todo": "", "where": "", "peer": True}
    monkeypatch.setattr(tasks["chief-0"], "error", lambda: said)
    tasks["chief-0"].code = 1
    assert group.look() is None
    clock.now += 5
    assert group.look() is None
    clock.now += 1
    assert failed(group).task == "worker-0"


def test_a_task_that_does_not_start_is_said_not_to_have(clock):
    group, _ = start("chief")
    group.look()
    clock.now += 11
    failure = failed(group)
    assert failure.cause == "did not start training for 11 s"
    assert failure.error.what.startswith("task chief-0 did not start training for 11 s")
    assert "trainer.start_timeout" in failure.error.expected


def test_an_evaluator_that_waits_is_not_at_work(clock):
    group, tasks = start("evaluator")
    for event, works in (("started", False), ("waiting", False), ("evaluating", True), ("evaluated", True)):
        tasks["evaluator-0"].say(event)
        clock.now += 1
        group.look()
        assert group.worked == (clock.now if works else 0.0)


def test_an_evaluator_that_is_killed_after_the_chief_leaves_its_work_to_an_exporter_and_its_own_error_stays_one():
    for code, is_failure in ((-9, False), (1, True)):
        group, tasks = start("chief", "worker", "evaluator")
        tasks["chief-0"].code = tasks["worker-0"].code = 0
        tasks["evaluator-0"].code = code
        failure = group.look()
        assert (failure is not None) is is_failure
        assert failure is None or (failure.task, failure.retryable) == ("evaluator-0", False)
        assert group.done() is not is_failure
