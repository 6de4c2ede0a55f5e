"""Trains in supervised, fresh processes: an Estimator, a Keras model, or what a run_fn does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfx_estimator.components.trainer.component import Trainer

__all__ = ["Trainer"]


def __getattr__(name: str) -> Any:
    # A task imports this package before all else, and must enter its network before TFX starts threads.
    if name == "Trainer":
        from tfx_estimator.components.trainer.component import Trainer

        return Trainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
