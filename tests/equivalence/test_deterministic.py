"""`trainer.deterministic: true`: two runs end with equal bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.equivalence.conftest import MULTI_WORKER, ONE_DEVICE

pytestmark = [pytest.mark.equivalence, pytest.mark.long, pytest.mark.timeout(300)]

MIRRORED = {"strategy": "mirrored", "devices": {"cpu": 2}}
TRAINER_FN = str(Path(__file__).parent / "user" / "own_model_fns.py")


# Keras's own dropout: random operations need a seed under determinism.
KERAS_DROPOUT = {"model": "own_networks:regularised", "params": {"norm": "keras", "dropout": "keras"}}
CASES = {
    # A model_fn without a seed.
    "one_device model_fn": (ONE_DEVICE, "mnist exact", {"model": "own_model_fns:by_keras"}),
    "mirrored model_fn": (MIRRORED, "mnist exact", {"model": "own_model_fns:by_keras"}),
    "mirrored layers": (MIRRORED, "mnist exact", {"model": "own_model_fns:by_layers"}),
    "multi_worker_mirrored model_fn": (MULTI_WORKER, "mnist exact", {"model": "own_model_fns:by_keras"}),
    "mirrored trainer_fn": (MIRRORED, "mnist exact", {"module_file": TRAINER_FN}),
    "multi_worker_mirrored network": (MULTI_WORKER, "mnist", KERAS_DROPOUT),
}


@pytest.mark.parametrize(("train", "data", "model"), CASES.values(), ids=CASES)
def test_two_runs_end_with_equal_bits(trainings, train, data, model):
    # With TensorFlow's default number of threads, which could split sums differently in each run.
    declared = {"data": data, "deterministic": True, "distribution": {"train": train, "max_restarts": 0}, **model}
    first, second = trainings.run({**declared, "name": "first"}, {**declared, "name": "second"})
    assert first.model != second.model
    assert first.losses == second.losses
    assert first.losses
    first.assert_bits_of(second)


@pytest.mark.parametrize("model", [{"model": "own_model_fns:by_keras"}, {"module_file": TRAINER_FN}])
def test_another_seed_has_other_results(trainings, model):
    declared = {"data": "mnist exact", "deterministic": True, "train_steps": 5, **model}
    one, other = trainings.run({**declared, "seed": 1}, {**declared, "seed": 2})
    assert not set(one.losses) & set(other.losses)
