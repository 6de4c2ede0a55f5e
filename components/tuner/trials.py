"""Trials: what is tried, and what came of it, in a file for each that survives any end of a process."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from typing import Any, Optional

from tfx.dsl.io import fileio

from tfx_estimator.components.files import write_whole
from tfx_estimator.pipeline.base.files import finite

COMPLETED, FAILED = "completed", "failed"
# What a trial is of, while it trains; and what came of it.
BEGUN, _FILE = "begun.json", "trial.json"


@dataclasses.dataclass(frozen=True)
class Trial:
    """What is tried."""

    number: int  # from 1
    values: Mapping[str, Any]
    # All of keras-tuner's, as `HyperParameters.get_config` returns it.
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    steps: Optional[int] = None  # to train in all; None where the declaration says it
    parent: Optional[int] = None  # the trial whose checkpoint it goes on from; None if it begins at step 0


@dataclasses.dataclass(frozen=True)
class Result:
    """What came of a trial."""

    number: int
    values: Mapping[str, Any]
    status: str  # `completed` or `failed`
    score: Optional[float] = None  # the objective; None if it failed
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)  # of its evaluation, by name
    steps: Optional[int] = None  # that it came to; None if that is not known
    seconds: float = 0.0  # wall time, start of its processes included
    reason: str = ""
    parent: Optional[int] = None

    def save(self, folder: str, name: str = _FILE) -> None:
        """Writes it into the trial's folder, whole or not at all."""
        write_whole(os.path.join(folder, name), json.dumps(self.to_dict(), indent=1))

    @classmethod
    def load(cls, folder: str, name: str = _FILE) -> Optional[Result]:
        """Reads what `save` wrote; None before that."""
        path = os.path.join(folder, name)
        if not fileio.exists(path):
            return None
        with fileio.open(path) as file:
            told = json.loads(file.read())
        told["metrics"] = {name: math.nan if value is None else value for name, value in told["metrics"].items()}
        return cls(**told)

    def to_dict(self) -> dict[str, Any]:
        """Returns what JSON can hold: what is not a number is null."""
        told = dataclasses.asdict(self)
        told["metrics"] = finite(self.metrics)
        return told

    def is_of(self, trial: Trial) -> bool:
        """Tells whether it came of the same values; on another machine they may differ in the last bits."""
        if self.parent != trial.parent or self.values.keys() != trial.values.keys():
            return False
        return all(_same(value, trial.values[name]) for name, value in self.values.items())


def forget(folder: str) -> None:
    """Removes a trial's result: it is done again."""
    path = os.path.join(folder, _FILE)
    if fileio.exists(path):
        fileio.remove(path)


def best_of(results: list[Result], better: str) -> Optional[Result]:
    """Returns the best of the completed trials by `max` or `min`, of equal ones the first; None if there is none."""
    sign = 1 if better == "max" else -1
    scored = [each for each in results if each.score is not None]
    return max(scored, key=lambda each: (sign * (each.score or 0.0), -each.number), default=None)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6)
    return one == other
