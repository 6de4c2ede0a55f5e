"""What a supervised training came to."""

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
        what: Which tasks were started again.
        step: Global step at which it happened; -1 before the first.
        follows: Is it but what the restart before did to another task; it counts as one with that.
        lost_steps: Steps done again; None until training goes on.
        seconds: From the failure until training went on; None until it does.
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
    """What a supervised training came to.

    Args:
        first_step: Global step that training started from, 0 unless it resumed; None if no step was reported, as a
            run_fn reports none.
        last_step: Global step that it ended at; None if no step was reported.
        seconds: Wall time, start of the processes included.
        examples_per_second: While steps were done; None if the batch size or the pace is not known.
        metrics: Of the exported model's evaluation, by name.
        restarts: What went wrong on the way.
        extra_steps: Beyond those that were asked for; None if it is not known how many were done, or asked for.
        publishes: Is this the process that publishes the model; not so for a worker in somebody else's cluster.
        numbers: Further ones, by the names that the model run's artifact has for them; None is not known.
        said: Texts, likewise; empty is nothing to say.
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
    said: dict[str, str] = dataclasses.field(default_factory=dict)

    def properties(self) -> dict[str, float]:
        """Returns the numbers that the model run's artifact carries; what is not known is not among them."""
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
        """Returns what the model run's artifact carries in words; what there is nothing to say of is not among them."""
        return {"history": self.history(), **{name: text for name, text in self.said.items() if text}}

    def history(self) -> str:
        """Returns the restarts as JSON, for the model run's artifact."""
        return json.dumps([dataclasses.asdict(restart) for restart in self.restarts])


def stopped(number: int, where: str) -> errors.StoppedError:
    """Returns the error of a training that a signal has ended."""
    return errors.StoppedError(
        f"training was ended by {signal.Signals(number).name}; {where}",
        todo="run the same again: training goes on from there",
        exit_code=128 + number,
    )
