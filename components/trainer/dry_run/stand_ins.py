"""What only the data, or a trial on this machine, can say, where there are none yet."""

from __future__ import annotations

import dataclasses

from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.config.class_weights import BALANCED

# What a schedule is told of a length that is not known yet.
STEPS = 1000


def with_stand_ins(settings: Settings, classes: int) -> Settings:
    """Puts a number of steps in the place of epochs, equal weights in that of balanced ones, and defaults in `auto`'s.

    Args:
        settings: Of the Trainer.
        classes: Of the data set.
    """
    section = settings.trainer
    assert section is not None
    assert settings.declaration is not None
    changed: dict[str, object] = {}
    if section.train_steps is None:
        changed.update(train_steps=STEPS, train_epochs=None)
    changed.update({name: section.__fields__[name].default for name in section.undecided})
    if section.class_weights == BALANCED:
        changed["class_weights"] = [1.0] * classes
    if not changed:
        return settings
    trainer = {**settings.declaration["trainer"], **changed}
    return dataclasses.replace(settings, declaration={**settings.declaration, "trainer": trainer})
