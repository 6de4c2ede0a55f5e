"""Resolves the model that a new one is compared with."""

from tfx_estimator.components.baseline_resolver.strategy import (
    DROPPED,
    ITSELF,
    BaselineStrategy,
    why_no_baseline,
    write_comparable,
)

__all__ = ["DROPPED", "ITSELF", "BaselineStrategy", "why_no_baseline", "write_comparable"]
