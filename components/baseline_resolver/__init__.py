"""Resolves the model that a new one is compared with."""

from tfx_estimator.components.baseline_resolver.comparable import DROPPED, ITSELF, why_no_baseline, write_comparable
from tfx_estimator.components.baseline_resolver.strategy import BaselineStrategy

__all__ = ["DROPPED", "ITSELF", "BaselineStrategy", "why_no_baseline", "write_comparable"]
