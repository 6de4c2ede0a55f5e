"""The bytes of a step, by hand, for each strategy."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.config.distribution import TrainStrategy
from tfx_estimator.pipeline.config.sync import SyncEvery
from tfx_estimator.pipeline.estimate.wire import wire_of

pytestmark = pytest.mark.unit

WEIGHTS, GRADIENTS = 1200, 1000


@pytest.mark.parametrize(
    ("train", "sent", "total", "between"),
    [
        ({"strategy": "one_device"}, 0, 0, 0),
        ({"strategy": "mirrored", "devices": {"cpu": 2}}, 0, 0, 2000),
        ({"strategy": "mirrored", "devices": {"cpu": 4}}, 0, 0, 6000),
        ({"strategy": "central_storage", "devices": {"cpu": 2}}, 0, 0, 2 * 2200),
        # A ring of 2 sends all gradients once from each; one of 4 sends 6 quarters of them.
        ({"strategy": "multi_worker_mirrored"}, 1000, 2000, 0),
        ({"strategy": "multi_worker_mirrored", "workers": 4}, 1500, 6000, 0),
        ({"strategy": "multi_worker_mirrored", "workers": 2, "devices": {"gpu": 2}}, 1000, 2000, 4000),
        ({"strategy": "multi_worker_mirrored", "gradient_compression": "fp16"}, 500, 1000, 0),
        ({"strategy": "multi_worker_mirrored", "workers": 1}, 0, 0, 0),
        ({"strategy": "parameter_server", "workers": 3, "ps": 2}, 1200, 3 * 2200, 0),
    ],
)
def test_bytes_of_a_step(train, sent, total, between):
    found = wire_of(TrainStrategy.parse_obj(train), WEIGHTS, GRADIENTS)
    assert (found.sent, found.total, found.between_devices) == (sent, total, between)


def test_averaged_weights_are_sent_in_place_of_gradients_with_the_slots():
    train = TrainStrategy(strategy="multi_worker_mirrored")
    found = wire_of(train, WEIGHTS, GRADIENTS, slots=1000, sync=SyncEvery(steps=4))
    assert (found.sent, found.total) == (500, 1000)
    assert "once in 4 steps" in found.how
