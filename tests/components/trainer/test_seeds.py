"""`trainer.seed` reaches a user's Estimators: Keras's layers, TensorFlow 1's, NumPy, the order of data."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.root import ROOT

PROCESS = Path(__file__).with_name("seeds_process.py")


def train(seed: int) -> dict[str, list[str]]:
    command = [sys.executable, str(PROCESS), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return {name: digests for name, *digests in map(json.loads, done.stdout.splitlines())}


@pytest.mark.cluster
@pytest.mark.timeout(180)
def test_each_training_of_a_process_comes_to_the_same_bits():
    found = train(1)
    assert sorted(found) == [
        f"{strategy} {by}" for strategy in ("mirrored", "one_device") for by in ("by_keras", "by_model_fn")
    ]
    for name, (first, second) in found.items():
        assert first == second, name
    assert len({first for first, _ in found.values()}) == len(found)


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(360)
def test_so_does_another_process_with_the_seed_and_none_with_another():
    one, again, other = (train(seed) for seed in (1, 1, 2))
    assert one == again
    assert not {digest for each in one.values() for digest in each} & {
        digest for each in other.values() for digest in each
    }
