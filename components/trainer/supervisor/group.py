"""The tasks of one attempt, watched until they are done or one of them fails."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, Optional

from tfx_estimator.components.trainer.protocol.events import NOT_AT_WORK, Event, stage_after
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, EVALUATOR, PS, WORKER, TaskSpec
from tfx_estimator.components.trainer.supervisor import failure
from tfx_estimator.components.trainer.supervisor.failure import Failure
from tfx_estimator.components.trainer.supervisor.process import TaskProcess

# How long to look for the cause behind an error that only says that another task has gone.
_CAUSE_SECONDS = 5.0
# How long the others may take to end after the chief: parameter servers never end, and workers may be stuck.
_END_SECONDS = 45.0
# If all tasks stand still, one that had no heartbeat for so long is to blame.
_SILENT_SECONDS = 5.0
# Code that reports nothing of its own works as long as it uses a tenth of a core, on average over a tenth of
# stall_timeout: far more than one that waits for ever does with its heartbeat and TensorFlow's, and less than any that
# computes, or feeds what does.
_LEAST_CORES, _LOOKS = 0.1, 10
# Without any output it counts as working for at most so many times stall_timeout: a busy wait (of NCCL, or a loop in
# the user's code) uses the CPU, too.
_WORDLESS_TIMES = 6
CHIEF_NAME = f"{CHIEF}-0"


@dataclasses.dataclass
class _Member:
    """A task and what is known of it."""

    process: TaskProcess
    seen: Optional[Event] = None
    moved: float = 0.0
    log_size: int = 0
    silent: float = 0.0
    # Like `silent`, but a task that computes is not idle: it may hold Python's lock for long, so that its heartbeat
    # stops.
    idle: float = 0.0
    step: int = -1
    # When the task last reported an event or wrote to its log.
    said: float = 0.0
    # When its CPU time was last read, the value then, and when it was last seen to grow.
    looked: float = 0.0
    used: float = 0.0
    computed: float = 0.0


class Group:
    """The tasks of one attempt.

    Args:
        start_timeout: Seconds until each task's first sign of progress.
        stall_timeout: Seconds without any progress.
        hear: Is told each event, and of which task.
        serving: Types of the tasks that never end by themselves; alone, they serve until they are ended.
    """

    def __init__(
        self,
        start: Callable[[TaskSpec], TaskProcess],
        start_timeout: float,
        stall_timeout: float,
        hear: Callable[[TaskSpec, dict[str, Any]], None],
        serving: frozenset[str] = frozenset({PS}),
    ) -> None:
        self._start = start
        self._serving = serving
        self._start_timeout = start_timeout
        self._stall_timeout = stall_timeout
        self._hear = hear
        self._members: dict[str, _Member] = {}
        self._moved = time.monotonic()
        self._chief_ended: Optional[float] = None
        self._suspect: Optional[tuple[float, Failure]] = None

    @property
    def step(self) -> int:
        """The highest global step that a task has done; -1 before the first."""
        return max((member.step for member in self._members.values()), default=-1)

    @property
    def worked(self) -> float:
        """When a task that is at work got on last, by the monotonic clock; 0 where none is."""
        idle = (*NOT_AT_WORK, Event.WAITING)
        return max((member.moved for member in self._members.values() if member.seen not in idle), default=0.0)

    def start(self, tasks: Sequence[TaskSpec]) -> None:
        """Starts the tasks."""
        for each in tasks:
            self._members[each.name] = _Member(self._start(each), moved=time.monotonic())

    def restart(self, name: str, attempt: int) -> None:
        """Starts one task again, in its place: the same address, new files."""
        old = self._members[name].process
        old.kill()
        task_spec = dataclasses.replace(old.task_spec, attempt=attempt)
        self._members[name] = _Member(self._start(task_spec), moved=time.monotonic())
        self._moved = time.monotonic()
        self._suspect = None

    def has_started(self, name: str) -> bool:
        """Has this task begun its work."""
        return self._members[name].seen not in NOT_AT_WORK

    def look(self) -> Optional[Failure]:
        """Passes on what the tasks report.

        Returns:
            The failure of a task that ended with an error or missed a deadline, if there is one.
        """
        # The exit codes are read first, so that all that a task reported before its end is read after them.
        codes = {name: member.process.code for name, member in self._members.items()}
        for member in self._members.values():
            self._read(member)
        if CHIEF_NAME in codes and codes[CHIEF_NAME] == 0 and self._chief_ended is None:
            self._chief_ended = time.monotonic()
        found = self._failed(codes)
        return found or self._late(codes)

    def done(self) -> bool:
        """Is all work done. After the chief's end, parameter servers and stuck workers do not count."""
        codes = {name: member.process.code for name, member in self._members.items()}
        types = {name: member.process.task_spec.type for name, member in self._members.items()}
        needed = {name: code for name, code in codes.items() if types[name] not in self._endless}
        # Nothing is needed where this is a parameter server in somebody else's cluster: it serves until it is ended.
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
        waits = member.seen in (Event.WAITING, Event.EVALUATED)
        return waits and time.monotonic() - max(member.moved, self._chief_ended or 0.0) > _END_SECONDS

    def trainers_ended(self) -> bool:
        """Have all tasks that train ended, in whatever way. Tasks that serve a chief never end, and do not count."""
        specs = [(member.process.code, member.process.task_spec) for member in self._members.values()]
        return all(code is not None for code, task in specs if task.trains and task.type not in self._endless)

    def trains(self) -> bool:
        """Are steps being done."""
        members = self._members.values()
        return any(m.process.task_spec.trains and m.seen is Event.STEP and m.process.code is None for m in members)

    def kill(self) -> None:
        """Ends all tasks, and what they started."""
        for member in self._members.values():
            member.process.kill()

    @property
    def _endless(self) -> frozenset[str]:
        """Types of the tasks that do not end by themselves; a worker alone, in somebody else's cluster, may."""
        return self._serving if CHIEF_NAME in self._members else frozenset({PS})

    def _read(self, member: _Member) -> None:
        now = time.monotonic()
        member.silent = member.idle = member.process.silent()
        events = member.process.events()
        for event in events:
            member.seen = stage_after(member.seen, event["event"])
            if event["event"].is_progress:
                member.moved = member.said = now
                self._moved = now if member.process.task_spec.trains else self._moved
            self._hear(member.process.task_spec, event)
        step = member.process.step()
        if step != member.step:
            # A lower step counts, too: a parameter server that was restarted goes back to the last checkpoint.
            member.step, member.moved = step, now
            self._moved = now
        size = member.process.log_size()
        # A run_fn reports nothing. A growing log counts as progress, and so does, for a while, use of the CPU.
        if member.seen is Event.RUNNING:
            member.said = now if size != member.log_size else member.said
            # One stall_timeout less, because the last use of the CPU counts for one more.
            is_borne = now - member.said < (_WORDLESS_TIMES - 1) * self._stall_timeout
            if (self._computes(member, now) and is_borne) or member.said == now:
                member.moved = self._moved = now
            member.idle = min(member.silent, now - member.computed)
        member.log_size = size

    def _computes(self, member: _Member, now: float) -> bool:
        """Has a task used the CPU since the last look. False if that was just now: then it is not looked at again."""
        if (passed := now - member.looked) < self._stall_timeout / _LOOKS:
            return False
        before, member.used, member.looked = member.used, member.process.cpu_seconds(), now
        if member.used - before < _LEAST_CORES * passed:
            return False
        member.computed = now
        return True

    def _failed(self, codes: dict[str, Optional[int]]) -> Optional[Failure]:
        """The failure that explains the others."""
        failures = [
            failure.ended(self._members[name].process, code)
            for name, code in codes.items()
            if code is not None and not self._is_over(name, code)
        ]
        causes = [each for each in failures if not each.from_peer]
        if causes:
            # An error of the user's code comes first, because no restart mends it.
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
        """Did a task end well, or fail only after the training had ended well, which is no failure of the training.

        What an evaluator that was killed had still to do is left to an exporter; an error of the user's code would
        come again.
        """
        process = self._members[name].process
        # Only a run_fn knows when it is done; whether it left a model is checked at the end.
        if code == 0 and (self._members[name].seen is Event.RUNNING or not process.left()):
            return True
        if self._chief_ended is None or process.task_spec.type == CHIEF:
            return False
        return process.task_spec.type != EVALUATOR or failure.ended(process, code).retryable

    def _blame_silent(self, found: Failure) -> Failure:
        """Names the stopped task behind the error of one that waited for it."""
        silent = [m for m in self._members.values() if m.process.code is None and m.silent > _SILENT_SECONDS]
        if not silent:
            return found
        return failure.stalled(silent[0].process, silent[0].silent, self._stall_timeout, "stall_timeout")

    def _late(self, codes: dict[str, Optional[int]]) -> Optional[Failure]:
        """The failure of a task that missed a deadline."""
        now = time.monotonic()
        # After the chief's end its workers have no deadlines any more.
        kinds = (WORKER, PS) if self._chief_ended is not None else ()
        running = [
            member
            for name, member in self._members.items()
            if codes[name] is None and member.process.task_spec.type not in kinds
        ]
        # First the tasks that have not reported their start: the others may be waiting for them.
        for member in sorted(running, key=lambda each: each.seen is not None):
            waited = now - member.process.started
            if member.seen in NOT_AT_WORK and waited > self._start_timeout:
                return failure.stalled(member.process, waited, self._start_timeout, "start_timeout")
        at_work = [member for member in running if member.seen not in NOT_AT_WORK]
        silent = [member for member in at_work if member.idle > min(_SILENT_SECONDS, self._stall_timeout)]
        if any(member.idle > self._stall_timeout for member in silent):
            # A chief may be silent because TensorFlow waits for a task that serves it. Those wait for nobody, so blame
            # one of them first.
            blamed = max(silent, key=lambda each: (self._serves(each), each.idle))
            return failure.stalled(blamed.process, blamed.idle, self._stall_timeout, "stall_timeout")
        trainers = [member for member in at_work if self._steps(member)]
        if trainers and self._chief_ended is None and now - self._moved > self._stall_timeout:
            # They may be waiting for a task that serves them, and such tasks report no steps.
            serving = [member for member in silent if self._serves(member)]
            blamed = max([*trainers, *serving], key=lambda each: each.idle)
            return failure.stalled(blamed.process, now - self._moved, self._stall_timeout, "stall_timeout")
        for member in running:
            since = max(member.moved, self._chief_ended or 0.0)
            if self._works_alone(member) and now - since > self._stall_timeout:
                return failure.stalled(member.process, now - since, self._stall_timeout, "stall_timeout")
        return None

    def _serves(self, member: _Member) -> bool:
        return member.process.task_spec.type in self._serving | {PS}

    def _steps(self, member: _Member) -> bool:
        """Does a task do steps of its own accord. One that serves a chief does not, and reports none."""
        return member.process.task_spec.trains and not self._serves(member)

    def _works_alone(self, member: _Member) -> bool:
        """Does a task that does not train have something to do. An evaluator may be waiting for a checkpoint."""
        task_spec = member.process.task_spec
        if task_spec.trains or task_spec.type == PS or member.seen in NOT_AT_WORK:
            return False
        return task_spec.type != EVALUATOR or member.seen is Event.EVALUATING or self._chief_ended is not None
