"""The digits, trainings by the executor, and a training on two processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tests.components.trainer.conftest import SHAPE, declaration, digits, settings, training
from tests.techniques import wire
from tests.techniques.options import NETWORKS
from tfx_estimator.model_fn import networks

__all__ = ["declaration", "digits", "settings", "training", "two_workers", "weights"]

SGD = {"optimizer": {"name": "sgd", "learning_rate": 0.1}}
TRAINERS: dict[str, dict[str, Any]] = {
    "none": SGD,
    "fp16": {**SGD, "distribution": {"train": {"gradient_compression": "fp16"}}},
    "bf16": {**SGD, "distribution": {"train": {"gradient_compression": "bf16"}}},
    "sync 1": {**SGD, "sync_every": 1},
    "sync 4": {"sync_every": {"steps": 4, "outer_momentum": 0.5}},
    "sync 4 restarted": {"sync_every": {"steps": 4, "outer_momentum": 0.5}, "restart": True},
    # Between two averagings.
    "sync 4 saved": {"sync_every": {"steps": 4, "outer_momentum": 0.5}, "save_at": 6},
    "sync 4 saved restarted": {"sync_every": {"steps": 4, "outer_momentum": 0.5}, "save_at": 6, "restart": True},
}


@pytest.fixture(scope="session")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """The results of each of two processes for each of TRAINERS."""
    return dict(zip(TRAINERS, wire.run(list(TRAINERS.values()), tmp_path_factory.mktemp("wire"))))


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a checkpoint, by name, of each network that a row of options trains."""
    folder = tmp_path_factory.mktemp("weights")
    for name in NETWORKS:
        network = getattr(networks, name)(10)
        network(tf.zeros([1, *SHAPE]))
        tf.train.Checkpoint(model=network).write(str(folder / name))
    return folder
