"""Pushes blessed models, whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfx_estimator.components.pusher.component import Pusher

__all__ = ["Pusher"]


def __getattr__(name: str) -> Any:
    # What pushes into folders of this machine needs no TFX.
    if name == "Pusher":
        from tfx_estimator.components.pusher.component import Pusher

        return Pusher
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
