"""Resolves the model that a new one is compared with."""

from tfx_estimator.components.baseline_resolver.comparable import write_comparable
from tfx_estimator.components.baseline_resolver.strategy import BaselineStrategy

__all__ = ["BaselineStrategy", "write_comparable"]
