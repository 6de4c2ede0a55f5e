"""What is known of a job, whoever runs it; and how it is followed to its end, whatever becomes of the connection."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional, Protocol, TypeVar

from tfx_estimator.pipeline.base.errors import PipelineError, TfxEstimatorError, TrainingError

# How long the service may not answer: a job that is followed, and one that is started.
PATIENCE_SECONDS, START_SECONDS = 900.0, 120.0
POLL_SECONDS = 5.0
GOES_ON = "what is submitted again goes on from its last checkpoint"
_TRAINER = "trainer"
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 30.0

_Told = TypeVar("_Told")
# Shows a line; whether it is a warning.
Say = Callable[[str, bool], None]


class LostError(Exception):
    """The service did not answer, or not for now: it may later."""


class Started(NamedTuple):
    """A job that goes on, or is done.

    Args:
        job: Its name, as the service knows it.
        is_new: Whether it was created now; else the same was submitted before.
        state: How it goes; empty of a new one.
    """

    job: str
    is_new: bool
    state: str = ""


@dataclass(frozen=True)
class Look:
    """How a job goes.

    Args:
        state: In the service's words.
        error: Why it did not succeed, where the service alone tells; None while it goes on, and if it did.
        message: What went wrong, in the service's words.
        tasks: The states of its steps, or pods, by name.
        lines: What it has printed since the last look.
        notices: What else is to be known of it since then.
        is_gone: Whether it is not there, and nobody knows how it has ended.
        outputs: What its steps made, where the service tells: a RuntimeArtifact's JSON, by step and output.
        seconds: How long it took, where the service tells.
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
    """Tells of jobs. Every question may raise LostError, and PipelineError where the service refuses."""

    def look(self, job: str) -> Look:
        """Returns how a job goes."""

    def cancel(self, job: str) -> None:
        """Asks for its end."""


class Service(Followed, Protocol):
    """Runs what was compiled."""

    def start(self, again: bool) -> Started:
        """Creates the job, unless the same goes on, or, but for `again`, has succeeded."""

    def address(self, job: str) -> str:
        """Returns where a person sees it."""

    def place(self) -> Mapping[str, Any]:
        """Returns what a note keeps, by its fields, so that the same job is found again."""

    def close(self) -> None:
        """Ends what is in use."""


def follow(service: Followed, job: str, say: Say, every: Optional[float] = None) -> Look:
    """Follows a job.

    Args:
        every: Seconds between two looks; None is POLL_SECONDS.

    Raises:
        TfxEstimatorError: It did not succeed, or the service does not answer.
    """
    before = ""
    tasks: dict[str, str] = {}
    while True:
        look = patiently(lambda: service.look(job), say, PATIENCE_SECONDS)
        for task, state in look.tasks.items():
            if tasks.get(task) != state:
                tasks[task] = state
                say(f"{_now()}  {task}: {state}", False)
        for line in look.lines:
            say(f"    {line}", False)
        for notice in look.notices:
            say(notice, True)
        if look.state != before:
            before = look.state
            say(f"{_now()}  {job}: {look.state}", False)
        if look.error is not None:
            raise look.error
        if look.ended:
            return look
        time.sleep(POLL_SECONDS if every is None else every)


class Patience:
    """Bears it that a service does not answer, for a while.

    Args:
        say: Is told that it does not, and that it does again.
        seconds: That are borne; from the first failed request, as a single one may take long by itself.
    """

    def __init__(self, say: Say, seconds: float) -> None:
        self._say, self._seconds = say, seconds
        self._since: Optional[float] = None
        self._wait = _FIRST_WAIT

    def lost(self, error: Exception) -> float:
        """Takes note of a request without an answer; returns how long to wait for the next one.

        Raises:
            PipelineError: It took too long.
        """
        if self._since is None:
            self._since = time.monotonic()
            self._say(f"the service does not answer: {error}; trying again", True)
        waited = time.monotonic() - self._since
        if waited > self._seconds:
            raise PipelineError(
                f"the service has not answered for {waited:.0f} s: {error}",
                expected="an answer, and room in the service's quotas; a job that was started goes on meanwhile",
                todo="run the same again when it does: what was submitted is found, and not started twice",
            ) from error
        wait, self._wait = self._wait, min(2 * self._wait, _LONGEST_WAIT)
        return wait

    def found(self) -> None:
        """Takes note of an answer."""
        if self._since is not None:
            self._say("the service answers again", True)
        self._since, self._wait = None, _FIRST_WAIT


def patiently(
    ask: Callable[[], _Told], say: Say, seconds: float, rest: Optional[Callable[[float], None]] = None
) -> _Told:
    """Asks a service; that it does not answer for a while is borne.

    Args:
        rest: Waits for so many seconds; None sleeps.

    Raises:
        PipelineError: It took longer, or the service refuses.
    """
    patience = Patience(say, seconds)
    while True:
        try:
            told = ask()
        except LostError as error:
            (rest or time.sleep)(patience.lost(error))
        else:
            patience.found()
            return told


def saying(logger: logging.Logger) -> Say:
    """Returns who tells a log."""
    return lambda line, is_warning: logger.log(logging.WARNING if is_warning else logging.INFO, line)


def failed(job: str, state: str, message: str, steps: Mapping[str, str], todo: str) -> TfxEstimatorError:
    """Returns the error of a job that did not succeed: of the training, where that was what failed.

    Args:
        message: In the service's words; may be empty.
        steps: What the steps that failed say, by name.
    """
    said = [f"{step}: {text}" if text else f"{step} failed" for step, text in steps.items()]
    what = f"the job {job} ended with {state}: {message or 'the service says no more'}"
    kind = TrainingError if any(step.lower() == _TRAINER for step in steps) else PipelineError
    return kind("\n".join([what, *said]), expected="a pipeline that runs to its end", todo=todo)


def _now() -> str:
    return time.strftime("%H:%M:%S")
