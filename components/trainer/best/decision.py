"""The evaluations of a training, and what follows from them and nothing else: so it is the same after any restart."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Optional

from tfx_estimator.components.files import read_json, write_whole
from tfx_estimator.pipeline.config.best import EarlyStopping, KeepBest

FILE = "evaluations.json"


@dataclass(frozen=True)
class Evaluation:
    """Of the checkpoint of a global step; a metric may be no finite number."""

    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Record:
    """The evaluations of a training, by rising step, in a file of its folder: what is decided survives any process.

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
        """Returns a record with one more: a training that went back to a checkpoint takes back what followed it."""
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


@dataclass(frozen=True)
class Verdict:
    """What early stopping says.

    Args:
        best: The last evaluation that was an improvement; None before the first.
    """

    best: Optional[Evaluation]
    waited: int
    stop: bool


def ranked(evaluations: Iterable[Evaluation], section: KeepBest) -> list[Evaluation]:
    """Sorts those whose metric is finite, the best first; of equal ones that of the lower loss, then the earlier."""
    sign = _sign(section.better)
    finite = [each for each in evaluations if math.isfinite(each.metrics.get(section.metric, math.nan))]

    def key(each: Evaluation) -> tuple[float, float, int]:
        # A model_fn of the user's has the second alone.
        loss = each.metrics.get("average_loss", each.metrics.get("loss", math.inf))
        return -sign * each.metrics[section.metric], math.inf if math.isnan(loss) else loss, each.step

    return sorted(finite, key=key)


def judge(evaluations: Iterable[Evaluation], section: EarlyStopping) -> Verdict:
    """Decides whether training is over, as Keras's EarlyStopping does; what was decided once stays so."""
    sign = _sign(section.better)
    best, bar, waited = None, -math.inf, 0
    for each in evaluations:
        if each.step < section.min_steps:
            continue
        value = sign * each.metrics.get(section.metric, math.nan)
        if math.isfinite(value) and value - section.min_delta > bar:
            best, bar, waited = each, value, 0
            continue
        waited += 1
        if waited >= section.patience:
            return Verdict(best, waited, True)
    return Verdict(best, waited, False)


def _sign(better: Optional[str]) -> int:
    return 1 if better == "max" else -1
