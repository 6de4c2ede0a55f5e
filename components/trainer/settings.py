"""What a Trainer is told beyond TFX's own parameters."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

# Under this key the settings travel in TFX's `custom_config`.
SETTINGS_KEY = "tfx_estimator"


@dataclasses.dataclass(frozen=True)
class Settings:
    """Deadlines, and what the built-in trainer_fn trains.

    Args:
        start_timeout: Seconds until a task's first sign of progress.
        stall_timeout: Seconds without any progress.
        declaration: The resolved declaration; None where the Trainer stands in a pipeline of somebody else's.
        image_shape: Height, width, channels of the examples' images.
        label_names: The classes, in the order of their labels.
        source: Fingerprint of the trained source code. TFX's own cache key sees only the name of a dotted path.
    """

    start_timeout: float = 300.0
    stall_timeout: float = 600.0
    declaration: Optional[dict[str, Any]] = None
    image_shape: tuple[int, int, int] = (0, 0, 0)
    label_names: tuple[str, ...] = ()
    source: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Returns what JSON can hold."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Settings:
        """Reads what `to_dict` wrote."""
        restored: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**restored)
