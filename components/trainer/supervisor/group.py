"""The tasks of one attempt, watched until they are done or one of them fails."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, Optional

from tfx_estimator.components.trainer.protocol.events import STARTING, Event, stage_after
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, EVALUATOR, PS, WORKER, TaskSpec
from tfx_estimator.components.trainer.supervisor import failure
from tfx_estimator.components.trainer.supervisor.failure import Failure
from tfx_estimator.components.trainer.supervisor.process import TaskProcess

# How long to look for the cause behind an error that only reports a lost peer.
_CAUSE_SECONDS = 5.0
# Grace period of the other tasks after the chief's end: parameter servers never end, and workers may be stuck.
_END_SECONDS = 45.0
# If no task makes progress, one without a heartbeat for this long is to blame.
_SILENT_SECONDS = 5.0
# A RUNNING task reports no progress, and is working while it uses a tenth of a core, on average over a tenth of
# stall_timeout.
# A blocked task uses far less for its heartbeat and TensorFlow's; one that computes, or feeds a device, uses more.
_LEAST_CORES, _SAMPLES = 0.1, 10
# Without output, such a task counts as working for at most this many times stall_timeout: a busy wait (in NCCL, or a
# loop in the user's code) also uses the CPU.
_MAX_QUIET_TIMEOUTS = 6
CHIEF_NAME = f"{CHIEF}-0"


@dataclasses.dataclass
class _Member:
    """A task and its state."""

    process: TaskProcess
    stage: Optional[Event] = None
    last_progress: float = 0.0
    log_size: int = 0
    silent: float = 0.0
    # Like `silent`, but at most the time since it last computed: holding the GIL for long stops its heartbeat.
    idle: float = 0.0
    step: int = -1
    # When the task last reported an event or wrote to its log.
    last_output: float = 0.0
    # When its CPU time was last read, the value then, and when it was last seen to grow.
    sampled: float = 0.0
    used: float = 0.0
    computed: float = 0.0


class Group:
    """The tasks of one attempt.

    Args:
        start_timeout: Seconds until each task's first progress.
        stall_timeout: Seconds without any progress.
        on_event: Called with each event and its task.
        serving: Types of the tasks that serve until they are killed.
    """

    def __init__(
        self,
        start: Callable[[TaskSpec], TaskProcess],
        start_timeout: float,
        stall_timeout: float,
        on_event: Callable[[TaskSpec, dict[str, Any]], None],
        serving: frozenset[str] = frozenset({PS}),
    ) -> None:
        self._start = start
        self._serving = serving
        self._start_timeout = start_timeout
        self._stall_timeout = stall_timeout
        self._on_event = on_event
        self._members: dict[str, _Member] = {}
        self._trainers_progress = time.monotonic()
        self._chief_ended: Optional[float] = None
        self._suspect: Optional[tuple[float, Failure]] = None

    @property
    def step(self) -> int:
        """The highest global step of any task; -1 before the first."""
        return max((member.step for member in self._members.values()), default=-1)

    @property
    def last_progress(self) -> float:
        """Monotonic time of the last progress of any task that is neither starting nor waiting; 0 if there is none."""
        idle = (*STARTING, Event.WAITING)
        return max((each.last_progress for each in self._members.values() if each.stage not in idle), default=0.0)

    def start(self, tasks: Sequence[TaskSpec]) -> None:
        """Starts the tasks."""
        for each in tasks:
            self._members[each.name] = _Member(self._start(each), last_progress=time.monotonic())

    def restart(self, name: str, attempt: int) -> None:
        """Restarts one task, at the same address and with new files."""
        old = self._members[name].process
        old.kill()
        task_spec = dataclasses.replace(old.task_spec, attempt=attempt)
        self._members[name] = _Member(self._start(task_spec), last_progress=time.monotonic())
        self._trainers_progress = time.monotonic()
        self._suspect = None

    def has_started(self, name: str) -> bool:
        """True if the task has begun its work."""
        return self._members[name].stage not in STARTING

    def poll(self) -> Optional[Failure]:
        """Passes on new events.

        Returns:
            The failure of a task that ended with an error or missed a deadline, if any.
        """
        # Exit codes first: every event that a task reported before its end is then read after its exit code.
        codes = {name: member.process.code for name, member in self._members.items()}
        for member in self._members.values():
            self._read(member)
        if CHIEF_NAME in codes and codes[CHIEF_NAME] == 0 and self._chief_ended is None:
            self._chief_ended = time.monotonic()
        found = self._failed(codes)
        return found or self._late(codes)

    def done(self) -> bool:
        """True if all work is done. After the chief's end, parameter servers and stuck workers do not count."""
        codes = {name: member.process.code for name, member in self._members.items()}
        types = {name: member.process.task_spec.type for name, member in self._members.items()}
        needed = {name: code for name, code in codes.items() if types[name] not in self._endless}
        # Empty for a parameter server of an external cluster, which serves until it is killed.
        if needed and all(code is not None and self._is_over(name, code) for name, code in needed.items()):
            return True
        if self._chief_ended is None or time.monotonic() - self._chief_ended < _END_SECONDS:
            return False
        # A worker may be stuck, and an evaluator may wait for a checkpoint that never comes.
        return all(
            (code is not None and self._is_over(name, code)) or self._is_idle(self._members[name])
            for name, code in needed.items()
        )

    def _is_idle(self, member: _Member) -> bool:
        if member.process.task_spec.type != EVALUATOR:
            return member.process.task_spec.type != CHIEF
        waits = member.stage in (Event.WAITING, Event.EVALUATED)
        return waits and time.monotonic() - max(member.last_progress, self._chief_ended or 0.0) > _END_SECONDS

    def trainers_ended(self) -> bool:
        """True if all tasks that train have ended, with any exit code. Tasks that serve a chief do not count."""
        specs = [(member.process.code, member.process.task_spec) for member in self._members.values()]
        return all(code is not None for code, task in specs if task.trains and task.type not in self._endless)

    def trains(self) -> bool:
        """True while a running task does steps."""
        members = self._members.values()
        return any(m.process.task_spec.trains and m.stage is Event.STEP and m.process.code is None for m in members)

    def kill(self) -> None:
        """Kills all tasks and the processes that they started."""
        for member in self._members.values():
            member.process.kill()

    @property
    def _endless(self) -> frozenset[str]:
        """Types of the tasks that serve until they are killed. A lone worker, of an external cluster, may end."""
        return self._serving if CHIEF_NAME in self._members else frozenset({PS})

    def _read(self, member: _Member) -> None:
        now = time.monotonic()
        member.silent = member.idle = member.process.silent()
        events = member.process.events()
        for event in events:
            member.stage = stage_after(member.stage, event["event"])
            if event["event"].is_progress:
                member.last_progress = member.last_output = now
                self._trainers_progress = now if member.process.task_spec.trains else self._trainers_progress
            self._on_event(member.process.task_spec, event)
        step = member.process.step()
        if step != member.step:
            # A lower step counts, too: a restarted parameter server restores the last checkpoint.
            member.step, member.last_progress = step, now
            self._trainers_progress = now
        size = member.process.log_size()
        # A run_fn reports no progress. A growing log counts as progress, and so does CPU use for a while.
        if member.stage is Event.RUNNING:
            member.last_output = now if size != member.log_size else member.last_output
            # One stall_timeout less, because the last CPU use counts as progress for one more.
            may_be_quiet = now - member.last_output < (_MAX_QUIET_TIMEOUTS - 1) * self._stall_timeout
            if (self._computes(member, now) and may_be_quiet) or member.last_output == now:
                member.last_progress = self._trainers_progress = now
            member.idle = min(member.silent, now - member.computed)
        member.log_size = size

    def _computes(self, member: _Member, now: float) -> bool:
        """True if a task has used the CPU since the last sample; False also if it is too early for another one."""
        if (passed := now - member.sampled) < self._stall_timeout / _SAMPLES:
            return False
        before, member.used, member.sampled = member.used, member.process.cpu_seconds(), now
        if member.used - before < _LEAST_CORES * passed:
            return False
        member.computed = now
        return True

    def _failed(self, codes: dict[str, Optional[int]]) -> Optional[Failure]:
        """Returns the failure that explains the others."""
        failures = [
            failure.ended(self._members[name].process, code)
            for name, code in codes.items()
            if code is not None and not self._is_over(name, code)
        ]
        causes = [each for each in failures if not each.from_peer]
        if causes:
            # An error of the user's code comes first, because no restart fixes it.
            return min(causes, key=lambda each: each.retryable)
        if not failures:
            return None
        now = time.monotonic()
        if self._suspect is None:
            self._suspect = (now, self._blame_silent(failures[0]))
        since, suspect = self._suspect
        all_ended = all(code is not None for code in codes.values())
        return suspect if all_ended or now - since > _CAUSE_SECONDS else None

    def _is_over(self, name: str, code: int) -> bool:
        """True if a task succeeded, or failed only after training had succeeded.

        An exporter does the work of a killed evaluator; an error in the user's code would occur there, too.
        """
        process = self._members[name].process
        # Only a run_fn knows when it is done; whether it saved a model is checked at the end.
        if code == 0 and (self._members[name].stage is Event.RUNNING or not process.exited_early()):
            return True
        if self._chief_ended is None or process.task_spec.type == CHIEF:
            return False
        return process.task_spec.type != EVALUATOR or failure.ended(process, code).retryable

    def _blame_silent(self, found: Failure) -> Failure:
        """Returns the failure of the hung task behind a peer's error."""
        silent = [m for m in self._members.values() if m.process.code is None and m.silent > _SILENT_SECONDS]
        if not silent:
            return found
        return failure.stalled(silent[0].process, silent[0].silent, self._stall_timeout, "stall_timeout")

    def _late(self, codes: dict[str, Optional[int]]) -> Optional[Failure]:
        """Returns the failure of a task that missed a deadline."""
        now = time.monotonic()
        # After the chief's end its workers have no deadlines.
        kinds = (WORKER, PS) if self._chief_ended is not None else ()
        running = [
            member
            for name, member in self._members.items()
            if codes[name] is None and member.process.task_spec.type not in kinds
        ]
        # First the tasks that have not reported their start: the others may be waiting for them.
        for member in sorted(running, key=lambda each: each.stage is not None):
            waited = now - member.process.started
            if member.stage in STARTING and waited > self._start_timeout:
                return failure.stalled(member.process, waited, self._start_timeout, "start_timeout")
        working = [member for member in running if member.stage not in STARTING]
        silent = [member for member in working if member.idle > min(_SILENT_SECONDS, self._stall_timeout)]
        if any(member.idle > self._stall_timeout for member in silent):
            # A chief may be silent because TensorFlow waits for a task that serves it. Serving tasks wait for no other,
            # so they are blamed first.
            blamed = max(silent, key=lambda each: (self._serves(each), each.idle))
            return failure.stalled(blamed.process, blamed.idle, self._stall_timeout, "stall_timeout")
        trainers = [member for member in working if self._reports_steps(member)]
        if trainers and self._chief_ended is None and now - self._trainers_progress > self._stall_timeout:
            # They may be waiting for a task that serves them, and such tasks report no steps.
            serving = [member for member in silent if self._serves(member)]
            blamed = max([*trainers, *serving], key=lambda each: each.idle)
            return failure.stalled(blamed.process, now - self._trainers_progress, self._stall_timeout, "stall_timeout")
        for member in running:
            since = max(member.last_progress, self._chief_ended or 0.0)
            if self._works_alone(member) and now - since > self._stall_timeout:
                return failure.stalled(member.process, now - since, self._stall_timeout, "stall_timeout")
        return None

    def _serves(self, member: _Member) -> bool:
        return member.process.task_spec.type in self._serving | {PS}

    def _reports_steps(self, member: _Member) -> bool:
        return member.process.task_spec.trains and not self._serves(member)

    def _works_alone(self, member: _Member) -> bool:
        """True if a task that does not train has work to do. An evaluator may be waiting for a checkpoint."""
        task_spec = member.process.task_spec
        if task_spec.trains or task_spec.type == PS or member.stage in STARTING:
            return False
        return task_spec.type != EVALUATOR or member.stage is Event.EVALUATING or self._chief_ended is not None
