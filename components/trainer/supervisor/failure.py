"""Failures of tasks, and whether a restart can help."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from tfx_estimator.components.trainer.protocol.events import STOPPED
from tfx_estimator.components.trainer.protocol.task_spec import UNWRITTEN
from tfx_estimator.components.trainer.supervisor.process import TaskProcess
from tfx_estimator.pipeline.base import errors
from tfx_estimator.pipeline.base.files import full_disk
from tfx_estimator.pipeline.base.text import one_line

RESUMES = "the next run resumes from the last checkpoint"


@dataclass(frozen=True)
class Failure:
    """The failure of a task.

    Args:
        cause: What happened to the task, in a few words.
        retryable: True if a restart can help; false for an error in the user's code.
        error: Raised if the task is not restarted.
        from_peer: True if the failure only follows from another task's end.
    """

    task: str
    cause: str
    retryable: bool
    error: errors.TfxEstimatorError
    from_peer: bool = False


def ended(process: TaskProcess, code: int) -> Failure:
    """Describes a task that ended before its work was done."""
    if record := process.error():
        return _raised(process, record)
    if code == STOPPED:
        stopped = errors.StoppedError(
            f"task {process.name} stopped at a checkpoint, as another task of its cluster requested",
            todo="run the same again: training resumes from there",
        )
        return Failure(process.name, "was asked to stop", retryable=False, error=stopped)
    if code == UNWRITTEN:
        return _no_room(process, process.files.folder, "ended, and could not write why")
    if code == 0:
        return _exited_early(process)
    killed = code < 0 or code >= errors.SIGNALLED
    number = -code if code < 0 else code - errors.SIGNALLED
    cause = f"was killed by {_signal_name(number)}" if killed else f"ended with exit code {code}"
    return Failure(
        process.name,
        cause,
        retryable=killed,
        error=errors.TaskFailedError(
            f"task {process.name} {cause}; its log ends with:\n{process.tail()}",
            todo=f"see the whole log: {process.files.log}; {RESUMES}",
        ),
    )


def stalled(process: TaskProcess, waited: float, limit: float, deadline: str) -> Failure:
    """Describes a task that missed a deadline."""
    what = "did not start training" if deadline == "start_timeout" else "made no progress"
    return Failure(
        process.name,
        f"{what} for {waited:.0f} s",
        retryable=True,
        error=errors.TaskStalledError(
            f"task {process.name} {what} for {waited:.0f} s; its log ends with:\n{process.tail()}",
            expected=f"progress within {limit:g} s (trainer.{deadline})",
            todo=f"raise trainer.{deadline}, or see the whole log: {process.files.log}",
        ),
    )


def _exited_early(process: TaskProcess) -> Failure:
    """Describes a task that ended with exit code 0 before its work was done."""
    lines = process.users_frames()
    where = "your code was running:\n" + "\n".join(lines) if lines else f"its log ends with:\n{process.tail()}"
    cause = "ended with exit code 0 before its work was done"
    error = errors.UserCodeError(
        f"task {process.name} {cause}; {where}",
        expected="code that returns, or raises an error",
        todo=f"fix the code that calls `os._exit`, or see the whole log: {process.files.log}",
    )
    return Failure(process.name, cause, retryable=False, error=error)


def _raised(process: TaskProcess, record: dict) -> Failure:
    """Describes a task that raised an error, from its error file."""
    if place := full_disk(record["what"], process.files.folder):
        return _no_room(process, place, f"failed: {record['type']}: {record['what']}\n{record['where']}")
    if (error := errors.from_json(record)) is not None:
        error.todo = error.todo or f"see {process.files.log}"
    else:
        late = record["type"] == "DeadlineExceededError"
        todo = "raise trainer.distribution.train.timeout_seconds if a step takes so long" if late else record["todo"]
        error = errors.TaskFailedError(
            f"task {process.name} failed: {record['type']}: {record['what']}\n{record['where']}",
            todo=f"{todo + ', or ' if todo else ''}see the whole log: {process.files.log}",
        )
    first_line = (record["what"].splitlines() or [""])[0][:120]
    cause = f"failed: {record['type']}: {first_line}"
    return Failure(process.name, cause, retryable=record["peer"], error=error, from_peer=record["peer"])


def _no_room(process: TaskProcess, place: str, what: str) -> Failure:
    error = errors.TaskFailedError(
        f"No space left on device: the disk of {one_line(place)} is full; task {process.name} {what}",
        todo=f"make room there (see `df`, and `df -i`); {RESUMES}",
    )
    return Failure(process.name, "found no space left on device", retryable=False, error=error)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
