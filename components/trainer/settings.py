"""What a Trainer is told beyond TFX's own parameters."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Optional

from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.trainer import TrainerSection

# Under this key the settings travel in TFX's `custom_config`.
SETTINGS_KEY = "tfx_estimator"
# TFX's cache key covers all that a component is told, so what must not miss the cache goes through the environment.
RESOLVED = "TFX_ESTIMATOR_RESOLVED"
_OPERATIONAL = {
    "start_timeout",
    "stall_timeout",
    "log_every_steps",
    "keep_checkpoint_max",
    "intra_op_threads",
    "max_restarts",
    "network",
    "timeout_seconds",
    "start_delay_secs",
    "throttle_secs",
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Deadlines, and what the built-in trainer_fn trains.

    Args:
        start_timeout: Seconds until a task's first sign of progress.
        stall_timeout: Seconds without any progress.
        declaration: What decides the model in the resolved declaration: see `keyed`; None where the Trainer stands in
            a pipeline of somebody else's.
        distribution_section: As `trainer.distribution`, for a Trainer without a declaration.
        image_shape: Height, width, channels of the examples' images.
        label_names: The classes, in the order of their labels.
        source: Fingerprint of the trained source code. TFX's own cache key sees only the name of a dotted path.
        path: The way of training: `estimator`, `run_fn`; empty leaves it to the functions that there are.
    """

    start_timeout: float = 300.0
    stall_timeout: float = 600.0
    declaration: Optional[dict[str, Any]] = None
    distribution_section: Optional[dict[str, Any]] = None
    image_shape: tuple[int, int, int] = (0, 0, 0)
    label_names: tuple[str, ...] = ()
    source: str = ""
    path: str = ""

    @property
    def trainer(self) -> Optional[TrainerSection]:
        """The declared `trainer` section; None where the Trainer stands in a pipeline of somebody else's."""
        return TrainerSection.parse_obj(self.declaration["trainer"]) if self.declaration else None

    @property
    def distribution(self) -> Distribution:
        """Strategies and the supervisor's contract: of the declaration, or of the Trainer's own parameter."""
        if section := self.trainer:
            return section.distribution
        return Distribution.parse_obj(self.distribution_section or {})

    def with_distribution(self, distribution: Distribution) -> Settings:
        """Returns the settings with another distribution."""
        if self.declaration is None:
            return dataclasses.replace(self, distribution_section=distribution.dict())
        trainer = {**self.declaration["trainer"], "distribution": distribution.dict()}
        return dataclasses.replace(self, declaration={**self.declaration, "trainer": trainer})

    def to_dict(self) -> dict[str, Any]:
        """Returns what JSON can hold."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Settings:
        """Reads what `to_dict` wrote."""
        restored: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**restored)

    @classmethod
    def of(cls, exec_properties: dict[str, Any]) -> Settings:
        """Reads the settings of an execution."""
        config = json.loads(exec_properties.get("custom_config") or "null") or {}
        return cls.from_dict(config.get(SETTINGS_KEY, {}))

    def resolved(self) -> Settings:
        """Returns the settings with the whole declaration, where the environment holds the one they come from."""
        text = os.environ.get(RESOLVED)
        if not text or not self.declaration:
            return self
        whole = Declaration.from_json(text)
        if json.dumps(keyed(whole)) != json.dumps(self.declaration):
            return self
        return dataclasses.replace(
            self,
            declaration=whole.dict(),
            start_timeout=whole.trainer.start_timeout,
            stall_timeout=whole.trainer.stall_timeout,
        )


def keyed(declaration: Declaration) -> dict[str, Any]:
    """Returns the part of a declaration that decides what is trained: no deadlines, no logging.

    The data and the preprocessing are not in it: the Trainer is keyed by the artifacts that they became.
    """
    trainer = json.loads(declaration.to_json())["trainer"]
    kept = {key: value for key, value in trainer.items() if key not in _OPERATIONAL}
    return {"trainer": {**kept, "distribution": keyed_distribution(kept["distribution"])}}


def keyed_distribution(section: dict[str, Any]) -> dict[str, Any]:
    """Returns the part of a section `trainer.distribution` that decides what is trained."""
    kept = {key: value for key, value in section.items() if key not in _OPERATIONAL}
    if "train" in kept:
        kept["train"] = {key: value for key, value in kept["train"].items() if key not in _OPERATIONAL}
    return kept


def announce(declaration: Declaration) -> None:
    """Puts the whole declaration into the environment, for the components of this process."""
    os.environ[RESOLVED] = declaration.to_json()
