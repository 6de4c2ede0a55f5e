"""What follows from the evaluations of a training, and from nothing else: so it is the same after any restart."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from tfx_estimator.components.trainer.best.record import Evaluation
from tfx_estimator.pipeline.config.best import EarlyStopping, KeepBest


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
    """Sorts evaluations, the best first; of equal ones that of the lower `average_loss`, and then the earlier.

    Returns:
        Those whose metric is a finite number.
    """
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
