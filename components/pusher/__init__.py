"""Pushes blessed models atomically."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfx_estimator.components.pusher.component import Pusher

__all__ = ["Pusher"]


def __getattr__(name: str) -> Any:
    # Lazily: pushing into local folders needs no TFX.
    if name == "Pusher":
        from tfx_estimator.components.pusher.component import Pusher

        return Pusher
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
