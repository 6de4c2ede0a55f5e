"""Trains an Estimator, or whatever a module file trains, in supervised fresh processes."""

from components.trainer.component import Trainer

__all__ = ["Trainer"]
