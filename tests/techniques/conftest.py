"""The digits, and trainings through the executor."""

from tests.components.trainer.conftest import declaration, digits, settings, training

__all__ = ["declaration", "digits", "settings", "training"]
