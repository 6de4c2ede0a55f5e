"""Resolves the model that a new one is compared with."""

from tfx_estimator.components.baseline_resolver.comparable import is_baseline, write_comparable
from tfx_estimator.components.baseline_resolver.strategy import BaselineStrategy

__all__ = ["BaselineStrategy", "is_baseline", "write_comparable"]
