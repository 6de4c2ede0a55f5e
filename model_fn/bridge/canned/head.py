"""The head of a canned Estimator: the kind of its logits, and its loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Optional

BINARY, CLASSES, LABELS, REGRESSION = "binary", "classes", "labels", "regression"
SUM, MEAN, WEIGHTED_MEAN = "sum", "mean", "weighted mean"


@dataclasses.dataclass(frozen=True)
class Head:
    """The head of a canned Estimator.

    Args:
        reduction: From the examples' losses to the batch's: SUM, MEAN, or WEIGHTED_MEAN, which divides by the sum
            of the weights.
        weight: The feature that weights an example's loss; empty if there is none.
        words: The labels' names, in the order of their numbers; empty if labels are numbers.
    """

    kind: str
    units: int
    reduction: str
    weight: str
    words: tuple[str, ...]
    loss: Optional[Callable[..., Any]] = None

    @property
    def is_sum(self) -> bool:
        """True if the loss of a batch is the sum of its examples' losses."""
        return self.reduction == SUM
