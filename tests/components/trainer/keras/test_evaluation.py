"""The consequences of evaluations in a Keras training."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import tensorflow as tf

from tfx_estimator.components.trainer.best.keeper import Chosen
from tfx_estimator.components.trainer.keras.evaluation import Evaluations
from tfx_estimator.components.trainer.protocol.events import ProgressWriter
from tfx_estimator.pipeline.base.errors import TrainingError
from tfx_estimator.pipeline.config.distribution import Distribution


class Losses:
    """Returns given losses for checkpoints, and records which were evaluated."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **losses: float) -> None:
        self.folder, self.losses = folder, losses
        self.seen: list[str] = []
        monkeypatch.setattr(tf.train, "latest_checkpoint", lambda _: self.path(list(losses)[len(self.seen)]))

    def path(self, name: str) -> str:
        return str(self.folder / f"model.ckpt-{name.removeprefix('at_')}")

    def evaluate(self, checkpoint: str) -> dict[str, float]:
        self.seen.append(f"at_{checkpoint.rpartition('-')[2]}")
        return {"loss": self.losses[self.seen[-1]]}

    def evaluations(self, keeper=None) -> Evaluations:
        return Evaluations(lambda: self, str(self.folder), keeper, 0.0, ProgressWriter(str(self.folder / "progress")))


def test_a_checkpoint_with_a_nan_loss_is_tolerated_unless_it_is_the_last(tmp_path, monkeypatch):
    losses = Losses(tmp_path, monkeypatch, at_10=math.nan, at_20=1.0, at_30=math.nan)
    evaluations = losses.evaluations()
    assert [evaluations.ends() for _ in range(2)] == [False, False]
    # Checkpoints that were evaluated during training are not evaluated again.
    assert evaluations.choose(losses.path("20")) == losses.path("20")
    assert losses.seen == ["at_10", "at_20"]
    with pytest.raises(TrainingError, match=r"the loss of checkpoint .*model\.ckpt-30 is not a number"):
        evaluations.choose(losses.path("30"))


def test_an_evaluator_follows_to_the_last_checkpoint(tmp_path, monkeypatch):
    losses = Losses(tmp_path, monkeypatch, at_10=math.nan, at_20=1.0, at_30=0.5)
    distribution = Distribution(start_delay_secs=0)
    monkeypatch.setattr(Distribution, "seconds_between_evaluations", 0)
    evaluations = losses.evaluations()
    assert evaluations.follow(distribution, last_step=30) == losses.path("30")
    assert losses.seen == ["at_10", "at_20", "at_30"]
    assert evaluations.choose(losses.path("30")) == losses.path("30")
    assert len(losses.seen) == 3


def test_an_exported_checkpoint_has_a_loss(tmp_path, monkeypatch):
    class Kept:
        def knows(self, step):
            return True

        def choose(self, last, step):
            return Chosen(last, step, {"loss": math.nan, "accuracy": 0.1})

    losses = Losses(tmp_path, monkeypatch)
    with pytest.raises(TrainingError, match=r"the loss of checkpoint .*model\.ckpt-100 is not a number"):
        losses.evaluations(Kept()).choose(losses.path("100"))
