"""The evaluations of a training, and the decisions that depend on them alone, so that restarts do not change them."""

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
    """The evaluation of a step's checkpoint; a metric may be infinite or NaN."""

    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Record:
    """The evaluations of a training, one for each step in ascending order, kept in a file of the training folder."""

    evaluations: tuple[Evaluation, ...] = ()

    def __iter__(self) -> Iterator[Evaluation]:
        return iter(self.evaluations)

    def __len__(self) -> int:
        return len(self.evaluations)

    def has(self, step: int) -> bool:
        """True if the checkpoint of a step was evaluated."""
        return any(each.step == step for each in self)

    def add(self, step: int, metrics: Mapping[str, float]) -> Record:
        """Returns a record with one more evaluation, without those of later steps, which a restore has undone."""
        return Record((*self.until(step - 1), Evaluation(step, dict(metrics))))

    def until(self, step: int) -> Record:
        """Returns the record up to and including a step."""
        return Record(tuple(each for each in self if each.step <= step))

    def save(self, training_dir: str) -> None:
        """Writes the record atomically; infinite and NaN are null."""
        evaluations = [
            {"step": each.step, "metrics": {k: v if math.isfinite(v) else None for k, v in each.metrics.items()}}
            for each in self
        ]
        write_whole(os.path.join(training_dir, FILE), json.dumps({"evaluations": evaluations}, indent=1))

    @classmethod
    def load(cls, training_dir: str) -> Record:
        """Reads the record; an empty one if there is no file."""
        evaluations = (read_json(os.path.join(training_dir, FILE)) or {"evaluations": ()})["evaluations"]
        return cls(
            tuple(
                Evaluation(each["step"], {k: math.nan if v is None else v for k, v in each["metrics"].items()})
                for each in evaluations
            )
        )


@dataclass(frozen=True)
class Verdict:
    """The verdict of early stopping.

    Args:
        best: The last evaluation that was an improvement, if any.
        waited: Number of evaluations since then.
    """

    best: Optional[Evaluation]
    waited: int
    stop: bool


def ranked(evaluations: Iterable[Evaluation], section: KeepBest) -> list[Evaluation]:
    """Sorts evaluations with a finite metric, the best first; ties by lower loss, then by earlier step."""
    sign = _sign(section.better)
    finite = [each for each in evaluations if math.isfinite(each.metrics.get(section.metric, math.nan))]

    def key(each: Evaluation) -> tuple[float, float, int]:
        # The user's model_fn has only `loss`.
        loss = each.metrics.get("average_loss", each.metrics.get("loss", math.inf))
        return -sign * each.metrics[section.metric], math.inf if math.isnan(loss) else loss, each.step

    return sorted(finite, key=key)


def judge(evaluations: Iterable[Evaluation], section: EarlyStopping) -> Verdict:
    """Decides whether training is over, as Keras's EarlyStopping does; later evaluations do not revoke it."""
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
