"""Messages between an Estimator's workers: half of the bytes, in the declared size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.equivalence.conftest import MULTI_WORKER, Trained, largest_difference
from tests.equivalence.test_accumulation import FLOAT32, _bytes_a_call
from tests.equivalence.test_strategies import as_shipped

pytestmark = [pytest.mark.equivalence, pytest.mark.long, pytest.mark.timeout(300)]

WEIGHTS = 347_146
SGD = {"name": "sgd", "learning_rate": 0.01, "schedule": "constant"}
# With global-norm clipping, this project's code reduces and applies the gradients.
CLIPPED = {"optimizer": {**SGD, "global_clip_norm": 0.1}}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({"optimizer": SGD}, {}),
    "bf16": ({"optimizer": SGD}, {"gradient_compression": "bf16"}),
    "packed": ({"optimizer": SGD}, {"bytes_per_pack": 65_536}),
    "clipped": (CLIPPED, {}),
    "clipped fp16": (CLIPPED, {"gradient_compression": "fp16"}),
    "clipped packed": (CLIPPED, {"bytes_per_pack": 65_536}),
}


@pytest.fixture(scope="module")
def trained(trainings, tmp_path_factory) -> dict[str, tuple[Trained, float, int]]:
    """The outputs of each case, its bytes on the wire per step, and its number of messages."""
    folder = tmp_path_factory.mktemp("wire")
    declared = []
    for name, (trainer, strategy) in CASES.items():
        own = {"model": "own_networks:counted", "params": {"file": str(folder / f"{name}.json")}, "train_steps": 20}
        declared.append({**as_shipped({**MULTI_WORKER, **strategy}), **own, **trainer})
    return {
        name: (result, _bytes_a_call(folder / f"{name}.json"), _messages(result))
        for name, result in zip(CASES, trainings.run(*declared))
    }


def _messages(result: Trained) -> int:
    """Counts the sums over the workers in the graph of a step."""
    return Path(result.run.uri, "graph.pbtxt").read_text().count('op: "CollectiveReduce')


@pytest.mark.parametrize(("plain", "name"), [("plain", "bf16"), ("clipped", "clipped fp16")])
def test_compressed_gradients_have_two_bytes_per_entry(trained, plain, name):
    (whole, bytes_whole, _), (half, bytes_half, _) = trained[plain], trained[name]
    # In a ring of two, one receives what the other sends, in both directions.
    assert 2 * WEIGHTS * 4 < bytes_whole < 2 * WEIGHTS * 4 * 1.15
    assert 2 * WEIGHTS * 2 < bytes_half < 2 * WEIGHTS * 2 * 1.3
    # Rounded, not lost; after clipping to a tenth, by as little as 1e-7.
    assert 0 < largest_difference(whole.weights, half.weights) < 1e-3
    assert half.loss(20) == pytest.approx(whole.loss(20), abs=0.01)


@pytest.mark.parametrize("name", ["", "clipped "])
def test_gradients_are_sent_in_messages_of_the_declared_size(trained, name):
    (whole, bytes_whole, one), (packed, bytes_packed, several) = (
        trained[name.strip() or "plain"],
        trained[f"{name}packed"],
    )
    assert several > one
    assert largest_difference(whole.weights, packed.weights) <= FLOAT32
    assert bytes_packed == pytest.approx(bytes_whole, rel=0.1)
