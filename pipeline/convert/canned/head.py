"""The head of a canned Estimator: what its logits are for, and its loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Optional

BINARY, CLASSES, LABELS, REGRESSION = "binary", "classes", "labels", "regression"
SUM, MEAN, WEIGHTED_MEAN = "sum", "mean", "weighted mean"


@dataclasses.dataclass(frozen=True)
class Head:
    """What the logits are for.

    Args:
        units: Logits of an example.
        reduction: What the loss of a batch is of its examples' losses: SUM, MEAN, or WEIGHTED_MEAN, which divides by
            the sum of the weights.
        weight: The feature that weights an example's loss; empty if none does.
        words: The labels' names, in the order of their numbers; empty where labels are numbers.
        loss: A user's loss of each example, of `labels` and `logits`.
    """

    kind: str
    units: int
    reduction: str
    weight: str
    words: tuple[str, ...]
    loss: Optional[Callable[..., Any]] = None

    @property
    def is_sum(self) -> bool:
        """Is the loss of a batch the sum of its examples' losses."""
        return self.reduction == SUM
