"""The evaluations of a training, in a file of the training folder: what is decided survives any end of a process."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tfx_estimator.components.files import read_json, write_whole

FILE = "evaluations.json"


@dataclass(frozen=True)
class Evaluation:
    """One evaluation.

    Args:
        step: Global step of the checkpoint.
        metrics: By name; may be no finite number.
    """

    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Record:
    """The evaluations of a training, by rising step.

    Args:
        evaluations: One for each step.
    """

    evaluations: tuple[Evaluation, ...] = ()

    def __iter__(self) -> Iterator[Evaluation]:
        return iter(self.evaluations)

    def __len__(self) -> int:
        return len(self.evaluations)

    def has(self, step: int) -> bool:
        """Was the checkpoint of a step evaluated."""
        return any(each.step == step for each in self)

    def add(self, step: int, metrics: Mapping[str, float]) -> Record:
        """Returns a record with one more.

        A training that went back to an earlier checkpoint takes back what followed it.

        Args:
            step: Of its checkpoint.
        """
        return Record((*self.until(step - 1), Evaluation(step, dict(metrics))))

    def until(self, step: int) -> Record:
        """Returns the record up to a step, itself included."""
        return Record(tuple(each for each in self if each.step <= step))

    def save(self, training_dir: str) -> None:
        """Writes it, whole or not at all; what is no finite number is null."""
        told = [
            {"step": each.step, "metrics": {k: v if math.isfinite(v) else None for k, v in each.metrics.items()}}
            for each in self
        ]
        write_whole(os.path.join(training_dir, FILE), json.dumps({"evaluations": told}, indent=1))

    @classmethod
    def load(cls, training_dir: str) -> Record:
        """Reads what `save` wrote; an empty one before that."""
        told = (read_json(os.path.join(training_dir, FILE)) or {"evaluations": ()})["evaluations"]
        return cls(
            tuple(
                Evaluation(each["step"], {k: math.nan if v is None else v for k, v in each["metrics"].items()})
                for each in told
            )
        )
