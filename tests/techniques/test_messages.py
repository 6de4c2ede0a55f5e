"""What the workers of a synchronous step say to each other."""

from __future__ import annotations

import pytest


@pytest.mark.cluster
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("trainer", "messages"),
    # A message is of one dtype: two bytes an entry are not those of the loss. Who averages weights sends no gradient.
    [("none", 1), ("fp16", 2), ("bf16", 2), ("sync 4", 0)],
)
def test_a_steps_loss_is_sent_with_its_gradients(two_workers, trainer, messages):
    assert [each["messages"] for each in two_workers[trainer]] == [messages, messages]


@pytest.mark.cluster
@pytest.mark.timeout(240)
@pytest.mark.parametrize("trainer", ["none", "fp16", "bf16"])
def test_the_loss_is_that_of_the_global_batch(two_workers, trainer):
    first, second = two_workers[trainer]
    assert first["loss"] == second["loss"]
    # That of workers that were each told their own part's, and were in step all the same.
    (one, two), tolerance = two_workers["sync 1"], 1e-2 if trainer != "none" else 1e-5
    assert one["loss"] != two["loss"]
    assert first["loss"] == pytest.approx((one["loss"] + two["loss"]) / 2, rel=tolerance)
