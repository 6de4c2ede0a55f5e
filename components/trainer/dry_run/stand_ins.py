"""What only the data can say, where there are none yet."""

from __future__ import annotations

import dataclasses

from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.config.class_weights import BALANCED

# What a schedule is told of a length that is not known yet.
STEPS = 1000


def with_stand_ins(settings: Settings, classes: int) -> Settings:
    """Puts a number of steps in the place of epochs, and equal weights in that of balanced ones."""
    section = settings.trainer
    assert section is not None
    assert settings.declaration is not None
    changed: dict[str, object] = {}
    if section.train_steps is None:
        changed.update(train_steps=STEPS, train_epochs=None)
    if section.class_weights == BALANCED:
        changed["class_weights"] = [1.0] * classes
    if not changed:
        return settings
    trainer = {**settings.declaration["trainer"], **changed}
    return dataclasses.replace(settings, declaration={**settings.declaration, "trainer": trainer})
