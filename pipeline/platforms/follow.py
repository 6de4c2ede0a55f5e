"""A job's status on any platform, and following it to its end through lost connections."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional, Protocol, TypeVar

from tfx_estimator.pipeline.base.errors import PipelineError, TfxEstimatorError, TrainingError, UnfollowedError

# How long an unavailable service is retried: while a job is followed, and while one is started.
FOLLOW_SECONDS, START_SECONDS = 900.0, 120.0
# How long one that refuses: a restarted API server does so until it has loaded its permissions, measured 2 s.
REFUSED_SECONDS = 20.0
POLL_SECONDS = 5.0
RESUMES = "submit it again to resume from its last checkpoint"
AGAIN = "run the same again: it finds the job, and starts no second one"
_TRAINER = "trainer"
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 30.0

_Answer = TypeVar("_Answer")
# Shows a line; the flag marks a warning.
Notify = Callable[[str, bool], None]


class UnavailableError(Exception):
    """The service is temporarily unavailable; `final`, if any, is raised if it stays so."""

    final: Optional[TfxEstimatorError] = None


class RefusedError(PipelineError):
    """The service does not let this account in; after REFUSED_SECONDS `final`, or else this error, is raised."""

    final: Optional[TfxEstimatorError] = None


class Started(NamedTuple):
    """A job that is running or has succeeded.

    Args:
        job: The service's name of it.
        is_new: Whether it was created now; otherwise the same was submitted before.
        state: Empty for a new one.
    """

    job: str
    is_new: bool
    state: str = ""


@dataclass(frozen=True)
class JobStatus:
    """A job's status.

    Args:
        state: As the service names it.
        error: Why it failed, as far as the service reports it; None while it runs and after success.
        message: The service's own error message.
        tasks: The states of its steps, or pods, by name.
        lines: Output since the last status.
        notices: Warnings since the last status.
        is_gone: Whether it was deleted, so that its result is unknown.
        outputs: Output artifacts as RuntimeArtifact JSON, by step and output, if the service reports them.
        seconds: Its duration, if the service reports it.
    """

    state: str
    ended: bool = False
    error: Optional[TfxEstimatorError] = None
    message: str = ""
    tasks: Mapping[str, str] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    is_gone: bool = False
    outputs: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    seconds: float = 0.0


class Followed(Protocol):
    """Reads and cancels jobs. Each call may raise UnavailableError, RefusedError, or PipelineError if it is final."""

    def status(self, job: str) -> JobStatus:
        """Returns a job's status."""

    def cancel(self, job: str) -> None:
        """Requests its cancellation."""


class Service(Followed, Protocol):
    """Runs a compiled pipeline."""

    def start(self, again: bool) -> Started:
        """Creates the job, unless the same one is running or, without `again`, has succeeded."""

    def address(self, job: str) -> str:
        """Returns the URL of its page."""

    def place(self) -> Mapping[str, Any]:
        """Returns the fields of a `Note` by which the job is found again."""

    def close(self) -> None:
        """Closes connections and threads."""


def follow(
    service: Followed,
    job: str,
    notify: Notify,
    every: Optional[float] = None,
    again: str = AGAIN,
    known: bool = True,
) -> JobStatus:
    """Polls a job to its end.

    Args:
        every: Poll interval in seconds; None is POLL_SECONDS.
        again: As of `Retries`, as is `known`.

    Raises:
        UnfollowedError: The service stays unavailable, or refuses.
        TfxEstimatorError: It failed.
    """
    before = ""
    tasks: dict[str, str] = {}
    while True:
        status = with_retries(lambda: service.status(job), notify, FOLLOW_SECONDS, again=again, known=known)
        known = True
        for task, state in status.tasks.items():
            if tasks.get(task) != state:
                tasks[task] = state
                notify(f"{_now()}  {task}: {state}", False)
        for line in status.lines:
            notify(f"    {line}", False)
        for notice in status.notices:
            notify(notice, True)
        if status.state != before:
            before = status.state
            notify(f"{_now()}  {job}: {status.state}", False)
        if status.error is not None:
            raise status.error
        if status.ended:
            return status
        time.sleep(POLL_SECONDS if every is None else every)


class Retries:
    """Exponential backoff for a service that is unavailable or refuses, with a time limit for each.

    Args:
        notify: Receives the start and the end of an outage.
        seconds: The limit, counted from the first failed request, because a single request may take long itself.
        again: How the job, which may still run, is followed again; empty while none is followed.
        known: Whether the service has answered for the job; before, a refusal is no `UnfollowedError`.
    """

    def __init__(self, notify: Notify, seconds: float, again: str = "", known: bool = True) -> None:
        self._notify, self._seconds, self._again, self._known = notify, seconds, again, known
        # Since when it fails, and since when it refuses.
        self._since: Optional[float] = None
        self._refused: Optional[float] = None
        self._wait = _FIRST_WAIT

    def failed(self, error: Exception) -> float:
        """Records a failed request; returns the seconds to wait before the next one.

        Raises:
            UnfollowedError: The limit is reached, and a job may still run.
            TfxEstimatorError: The limit is reached, or the error is neither of the two.
        """
        if not isinstance(error, (UnavailableError, RefusedError)):
            raise error
        now, refusal = time.monotonic(), error if isinstance(error, RefusedError) else None
        if self._since is None:
            self._since = now
            what = refusal.what if refusal else f"the service does not answer: {error}"
            todo = f"; if it stays so: {refusal.todo}" if refusal else ""
            self._notify(f"{what}; trying again{todo}", True)
        self._refused = (self._refused or now) if refusal else None
        limit = min(REFUSED_SECONDS, self._seconds) if refusal else self._seconds
        if (waited := now - (self._refused or self._since)) > limit:
            final = (
                error.final
                or refusal
                or PipelineError(
                    f"the service has not answered for {waited:.0f} s: {error}",
                    expected="an answer, and room in the service's quotas",
                    todo=f"when it answers, {AGAIN}",
                )
            )
            if not self._again or (refusal and not self._known):
                raise final
            todo = f"{refusal.todo}; then {self._again}" if refusal else f"when it answers, {self._again}"
            what = f"the job is no longer followed, and may still run: {final.what}"
            raise UnfollowedError(what, expected=final.expected, todo=todo) from error
        wait, self._wait = self._wait, min(2 * self._wait, _LONGEST_WAIT)
        return min(wait, limit - waited + _FIRST_WAIT)

    def succeeded(self) -> None:
        """Records an answer."""
        if self._since is not None:
            self._notify("the service answers again", True)
        self._since, self._refused, self._wait = None, None, _FIRST_WAIT


def with_retries(
    request: Callable[[], _Answer],
    notify: Notify,
    seconds: float,
    sleep: Optional[Callable[[float], None]] = None,
    again: str = "",
    known: bool = True,
) -> _Answer:
    """Calls a service, and retries while it is unavailable or refuses.

    Args:
        seconds: As of `Retries`, as are `again` and `known`.
        sleep: None is `time.sleep`.

    Raises:
        PipelineError: It stays so, or the request is wrong; UnfollowedError with `again`.
    """
    retries = Retries(notify, seconds, again, known)
    while True:
        try:
            answer = request()
        except (UnavailableError, RefusedError) as error:
            (sleep or time.sleep)(retries.failed(error))
        else:
            retries.succeeded()
            return answer


def log_to(logger: logging.Logger) -> Notify:
    """Returns a `Notify` that logs."""
    return lambda line, is_warning: logger.log(logging.WARNING if is_warning else logging.INFO, line)


def failed(job: str, state: str, message: str, steps: Mapping[str, str], todo: str) -> TfxEstimatorError:
    """Returns a failed job's error: a TrainingError if the Trainer failed.

    Args:
        message: The service's own; may be empty.
        steps: The messages of the failed steps, by name.
    """
    failures = [f"{step}: {text}" if text else f"{step} failed" for step, text in steps.items()]
    what = f"the job {job} ended with {state}: {message or 'the service gives no reason'}"
    kind = TrainingError if any(step.lower() == _TRAINER for step in steps) else PipelineError
    return kind("\n".join([what, *failures]), expected="a pipeline that runs to its end", todo=todo)


def _now() -> str:
    return time.strftime("%H:%M:%S")
