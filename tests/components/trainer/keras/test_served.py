"""How steps are handed out to the workers of parameter servers."""

from __future__ import annotations

import pytest

from tfx_estimator.components.trainer.keras.served import stretch
from tfx_estimator.pipeline.config.trainer import TrainerSection

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("checkpoints", "reports", "steps"),
    [(100, 40, 25), (25, 20, 25), (1000, 100, 100), (97, 20, 97), (5, 1, 5), (300, 1, 10)],
)
def test_a_stretch_ends_at_each_checkpoint_and_is_not_short(checkpoints, reports, steps):
    section = TrainerSection(model="mnist_cnn", save_checkpoints_steps=checkpoints, log_every_steps=reports)
    assert stretch(section) == steps
    assert checkpoints % steps == 0
