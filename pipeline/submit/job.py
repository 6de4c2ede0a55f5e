"""What is known of a job that was submitted, whoever runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional, Protocol

from tfx_estimator.pipeline.base.errors import PipelineError, TfxEstimatorError, TrainingError

TRAINER = "trainer"
GOES_ON = "what is submitted again goes on from its last checkpoint"


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
        error: Why it did not succeed; None while it goes on, and if it did.
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
    tasks: Mapping[str, str] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    is_gone: bool = False
    outputs: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    seconds: float = 0.0


class Service(Protocol):
    """Runs jobs. Every question may raise LostError, and PipelineError where the service refuses."""

    def start(self, again: bool) -> Started:
        """Creates the job, unless the same goes on, or, but for `again`, has succeeded."""

    def look(self, job: str) -> Look:
        """Returns how a job goes."""

    def cancel(self, job: str) -> None:
        """Asks for its end."""

    def address(self, job: str) -> str:
        """Returns where a person sees it."""

    def place(self) -> Mapping[str, Any]:
        """Returns what a note keeps, by its fields, so that the same job is found again."""

    def close(self) -> None:
        """Ends what is in use."""


def failed(job: str, state: str, message: str, steps: Mapping[str, str], todo: str) -> TfxEstimatorError:
    """Returns the error of a job that did not succeed: of the training, where that was what failed.

    Args:
        message: Likewise; may be empty.
        steps: What the steps that failed say, by name.
    """
    said = [f"{step}: {text}" if text else f"{step} failed" for step, text in steps.items()]
    what = f"the job {job} ended with {state}: {message or 'the service says no more'}"
    kind = TrainingError if any(step.lower() == TRAINER for step in steps) else PipelineError
    return kind("\n".join([what, *said]), expected="a pipeline that runs to its end", todo=todo)
