"""Messages between the workers of a synchronous step."""

from __future__ import annotations

import pytest

from tests.techniques import wire
from tests.techniques.conftest import TRAINERS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


@pytest.mark.parametrize(
    ("trainer", "messages"),
    # A message has one dtype: the loss is not sent with two bytes per entry. Averaging weights sends no gradients.
    [("none", 1), ("fp16", 2), ("bf16", 2), ("sync 4", 0)],
)
def test_a_steps_loss_is_sent_with_its_gradients(two_workers, trainer, messages):
    assert [each["messages"] for each in two_workers[trainer]] == [messages, messages]


@pytest.mark.parametrize("trainer", ["none", "fp16", "bf16"])
def test_the_loss_covers_the_global_batch(two_workers, trainer):
    first, second = two_workers[trainer]
    assert first["loss"] == second["loss"]
    # Compared with workers in step that report the losses of their own parts.
    (one, two), tolerance = two_workers["sync 1"], 1e-2 if trainer != "none" else 1e-5
    assert one["loss"] != two["loss"]
    assert first["loss"] == pytest.approx((one["loss"] + two["loss"]) / 2, rel=tolerance)


@pytest.mark.long
def test_gradients_are_sent_in_packs_of_the_declared_size(two_workers, tmp_path):
    # 20,480 bytes of the last layer's weights, which are first, and 131,072 of the other's.
    (packed,) = wire.run([dict(TRAINERS["none"])], tmp_path, bytes_per_pack=16_384)
    whole = two_workers["none"]
    assert [each["messages"] for each in whole] == [1, 1]
    assert [each["messages"] for each in packed] == [2, 2]
    assert packed[0]["weights"] == packed[1]["weights"]
    assert packed[0]["loss"] == pytest.approx(whole[0]["loss"], rel=1e-5)
    # The same bytes, except for the overhead of each message.
    assert packed[0]["bytes"] == pytest.approx(whole[0]["bytes"], rel=0.1)
