"""The result of a supervised training."""

from __future__ import annotations

import dataclasses
import json
import signal
from typing import Optional

from tfx_estimator.pipeline.base import errors


@dataclasses.dataclass
class Restart:
    """One restart: why, and what it cost.

    Args:
        cause: The task and what happened to it.
        what: Which tasks were restarted.
        step: Global step of the failure; -1 before the first.
        follows: True if the previous restart caused this failure in another task; both count as one.
        lost_steps: Steps done again; None until training continues.
        seconds: From the failure until training continued; None until it does.
    """

    cause: str
    what: str
    step: int
    follows: bool = False
    lost_steps: Optional[int] = None
    seconds: Optional[float] = None

    def __str__(self) -> str:
        lost = "" if self.lost_steps is None else f", {self.lost_steps} steps lost"
        seconds = "" if self.seconds is None else f", {self.seconds:.0f} s"
        return f"{self.cause} at step {max(self.step, 0)}; {self.what}{lost}{seconds}"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a supervised training.

    Args:
        first_step: Global step that training started from, 0 unless it resumed; None if no step was reported, as by a
            run_fn.
        last_step: Global step that training ended at; None if no step was reported.
        seconds: Wall time, including the start of the processes.
        examples_per_second: While steps were done; None if the batch size or the pace is unknown.
        metrics: The exported model's evaluation, by name.
        extra_steps: Steps beyond the requested number; None if either number is unknown.
        publishes: True if this process publishes the model; false for a worker of an external cluster.
        numbers: Further custom properties of the model_run artifact; None is unknown.
        notes: Likewise, as text; empty ones are left out.
    """

    first_step: Optional[int]
    last_step: Optional[int]
    seconds: float
    examples_per_second: Optional[float]
    metrics: dict[str, float]
    restarts: tuple[Restart, ...] = ()
    extra_steps: Optional[int] = None
    publishes: bool = True
    numbers: dict[str, Optional[float]] = dataclasses.field(default_factory=dict)
    notes: dict[str, str] = dataclasses.field(default_factory=dict)

    def properties(self) -> dict[str, float]:
        """Returns the numeric custom properties of the model_run artifact, without unknown ones."""
        facts = {
            "first_step": self.first_step,
            "last_step": self.last_step,
            "extra_steps": self.extra_steps,
            "train_seconds": self.seconds,
            "examples_per_second": self.examples_per_second,
            "restarts": sum(not restart.follows for restart in self.restarts),
            "lost_steps": sum(restart.lost_steps or 0 for restart in self.restarts),
            **self.numbers,
            **{f"eval_{name}": value for name, value in self.metrics.items()},
        }
        return {name: float(value) for name, value in facts.items() if value is not None}

    def texts(self) -> dict[str, str]:
        """Returns the text custom properties of the model_run artifact, without empty ones."""
        return {"history": self.history(), **{name: text for name, text in self.notes.items() if text}}

    def history(self) -> str:
        """Returns the restarts as JSON."""
        return json.dumps([dataclasses.asdict(restart) for restart in self.restarts])


def stopped(number: int, where: str) -> errors.StoppedError:
    """Returns the error of a training that a signal ended."""
    return errors.StoppedError(
        f"training was ended by {signal.Signals(number).name}; {where}",
        todo="run the same again: training resumes from there",
        exit_code=128 + number,
    )
