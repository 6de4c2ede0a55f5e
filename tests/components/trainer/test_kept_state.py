"""State that a layer assigns in `call` is that of the same steps on every path, and read in the order of the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.equivalence.conftest import read_weights

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

HERE = Path(__file__).resolve().parent
MIRRORED = {"strategy": "mirrored", "devices": {"cpu": 2}}
STEPS = 4


@pytest.fixture
def train(training, settings, monkeypatch):
    """Trains the network; returns its variables, by the ends of their names."""
    monkeypatch.syspath_prepend(str(HERE / "user"))

    def run(path: str, train: Any = "one_device", params: Any = None, **trainer: Any) -> dict[str, np.ndarray]:
        section = {
            "model": "keeps_state:network",
            "path": path,
            "params": params or {},
            "train_steps": STEPS,
            "optimizer": {"name": "sgd", "learning_rate": 0.01, "schedule": "constant"},
            "distribution": {"train": train, "max_restarts": 0},
            **trainer,
        }
        _, found = training.run(settings(trainer=section, path=path), STEPS)
        return {"/".join(name.split("/")[-2:]): value for name, value in read_weights(found.uri).items()}

    return run


def _same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    for name in ("keeps/count", "keeps/average", "logits/kernel", "logits/bias"):
        np.testing.assert_allclose(one[name], other[name], rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.long
def test_a_counter_and_an_average_are_kept_alike_by_every_path(train):
    found = [train(path) for path in ("estimator", "keras", "keras_custom_loop")]
    assert [each["keeps/count"] for each in found] == [STEPS] * 3
    assert np.abs(found[0]["keeps/average"]).max() > 0.01
    for other in found[1:]:
        _same(found[0], other)


@pytest.mark.long
def test_so_they_are_under_replicas(train):
    found = [train(path, MIRRORED) for path in ("estimator", "keras")]
    assert [each["keeps/count"] for each in found] == [STEPS] * 2
    _same(*found)


@pytest.mark.long
def test_so_they_are_in_the_parts_of_a_batch(train):
    found = [train(path, gradient_accumulation=2) for path in ("estimator", "keras")]
    assert [each["keeps/count"] for each in found] == [2 * STEPS] * 2
    _same(*found)
