"""Tries declared values in supervised trainings, and finds the best."""

from tfx_estimator.components.tuner.component import Tuner

__all__ = ["Tuner"]
