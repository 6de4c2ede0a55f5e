"""Inspection of a network's function on each path, before it trains."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tfx_estimator.components.trainer.estimator.first_call import call_again, call_first
from tfx_estimator.components.trainer.keras import model
from tfx_estimator.pipeline.config.trainer import TrainerSection

SPEC = {"image": tf.io.FixedLenFeature([4, 4, 1], tf.float32)}


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch):
    """Calls a function like a path: `keras`, `estimator`, or `in the graph` of the latter, with data of 3 classes."""

    def look(network: Any, path: str) -> Any:
        if path == "keras":
            monkeypatch.setattr(model, "find_function", lambda _: network)
            return model.ModelMaker(TrainerSection(model="own:network", train_steps=1), 3, SPEC).make()
        first = call_first(network, TrainerSection(), 3, SPEC)
        if path == "estimator":
            return first
        with tf.Graph().as_default():
            return call_again(network, 3, {}, first)

    return look
