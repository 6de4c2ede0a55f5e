"""Tunes hyperparameters in supervised trainings."""

from tfx_estimator.components.tuner.component import Tuner

__all__ = ["Tuner"]
