"""A resumed run ends like an uninterrupted one, and starts equally fast at any step."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.equivalence.conftest import MULTI_WORKER, Trained, killed_once, largest_difference, read_weights
from tests.equivalence.test_strategies import AS_SHIPPED, AUGMENT, STEPS, as_shipped
from tfx_estimator.pipeline.base.errors import TaskFailedError

pytestmark = [pytest.mark.equivalence, pytest.mark.long, pytest.mark.timeout(300)]

CHECKPOINT, KILL = 20, 27
LATE = 1_000_000
# Skipping all examples before LATE would take this many times as long.
STEP_TIMEOUT = 30


def lengthened(trainings, folder: Path, declared: dict, **first: int) -> tuple[Trained, Trained, Trained]:
    """Trains to a half, on to the end, and at once; the last two have the same bits.

    Args:
        first: What is declared of the former two.
    """
    whole = {
        "data": "mnist exact",
        "deterministic": True,
        "augment": AUGMENT,
        "global_batch_size": 32,
        "optimizer": {"schedule": "constant"},
        # Derived from train_steps.
        "save_checkpoints_steps": None,
        **declared,
    }
    half, longer = (trainings.train(folder, {**whole, **first, "train_steps": count}) for count in (STEPS // 2, STEPS))
    (at_once,) = trainings.run({**whole, "train_steps": STEPS})
    assert [longer.metric(name) for name in ("first_step", "last_step")] == [STEPS // 2, STEPS]
    assert at_once.metric("first_step") == 0
    longer.assert_bits_of(at_once)
    return half, longer, at_once


def test_a_worker_killed_at_a_step_changes_no_later_step(trainings, tmp_path):
    uninterrupted = as_shipped(MULTI_WORKER)
    marker = tmp_path / "marker"
    before, after = trainings.run(uninterrupted, killed_once(uninterrupted, KILL, marker, CHECKPOINT))
    after.assert_killed_once(marker, STEPS)
    # The second attempt resumed from the checkpoint before the kill.
    *_, log = sorted((Path(after.run.uri) / "logs").glob("chief-0.attempt-*.progress.jsonl"))
    events = map(json.loads, log.read_text().splitlines())
    assert next(event["step"] for event in events if event["event"] == "step") == CHECKPOINT
    assert after.steps == before.steps
    # Every loss, repeated steps included: the second attempt read the right batches.
    np.testing.assert_allclose(
        [loss for _, loss in after.losses], [before.loss(step) for step, _ in after.losses], rtol=0, atol=AS_SHIPPED
    )
    assert largest_difference(before.weights, after.weights) <= AS_SHIPPED


def test_a_lengthened_training_has_the_bits_of_one_of_that_length(trainings, tmp_path, caplog):
    caplog.set_level("INFO", "absl.tfx_estimator")
    half, longer, whole = lengthened(trainings, tmp_path, {"model": "mnist_cnn"})
    assert f"but of {STEPS // 2} steps, is at step {STEPS // 2}" in caplog.text
    assert "cosine" not in caplog.text
    # The published model is unchanged.
    assert half.weights["global_step"] == read_weights(half.run.uri)["global_step"] == STEPS // 2
    assert longer.losses == whole.losses


def make_late(folder: Path) -> None:
    """Replaces the checkpoints of a training by one of step LATE."""
    weights = read_weights(str(folder))
    assert weights["global_step"] == CHECKPOINT
    for path in folder.glob("model.ckpt-*"):
        path.unlink()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, value in {**weights, "global_step": np.int64(LATE)}.items():
            tf.compat.v1.get_variable(name, initializer=value)
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, str(folder / "model.ckpt"), global_step=LATE)


@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_two_workers_resume_at_a_late_step_as_fast_as_at_the_first(trainings, tmp_path):
    train = {**MULTI_WORKER, "timeout_seconds": STEP_TIMEOUT}
    values = {
        **as_shipped(train),
        "train_steps": LATE + 10,
        "model": "own_networks:killed_once",
        "params": {"kill_at": KILL, "marker": str(tmp_path / "marker")},
        "save_checkpoints_steps": CHECKPOINT,
        "resident_megabytes": 0,
    }
    with pytest.raises(TaskFailedError, match="killed"):
        trainings.train(tmp_path / "Trainer", values)
    (folder,) = (tmp_path / "Trainer" / "training").iterdir()
    make_late(folder)
    trained = trainings.train(tmp_path / "Trainer", values)
    assert trained.metric("restarts") == 0
    assert trained.metric("last_step") == LATE + 10
    late = [trained.loss(step) for step in trained.steps if step > LATE]
    assert len(late) == 10
    assert np.isfinite(late).all()
