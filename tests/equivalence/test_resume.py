"""A run that lost a worker and went on from a checkpoint ends as one that did not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.equivalence.conftest import largest_difference
from tests.equivalence.test_strategies import LOSS, STEPS, WEIGHTS, trainer

pytestmark = [pytest.mark.equivalence, pytest.mark.timeout(300)]

CHECKPOINT, KILL = 20, 27


def test_a_worker_killed_at_a_step_changes_no_later_step(trainings, tmp_path):
    uninterrupted = trainer("mnist_cnn", "multi_worker_mirrored")
    killed = {
        **uninterrupted,
        "model": "own_networks:killed_once",
        "params": {"kill_at": KILL, "marker": str(tmp_path / "marker")},
        "save_checkpoints_steps": CHECKPOINT,
        "distribution": {**uninterrupted["distribution"], "max_restarts": 1},
    }
    before, after = trainings.run(uninterrupted, killed)
    assert (tmp_path / "marker").exists()
    assert after.metric("restarts") == 1
    assert after.metric("last_step") == STEPS
    # Only a run that started again writes a step twice, and only from its checkpoint on.
    again = sorted(step for step in after.steps if [each for each, _ in after.losses].count(step) > 1)
    assert again
    assert min(again) >= CHECKPOINT
    assert after.steps == before.steps
    # Every loss, those of the repeated steps included: the second attempt read the batches that its steps are due.
    np.testing.assert_allclose(
        [loss for _, loss in after.losses], [before.loss(step) for step, _ in after.losses], rtol=0, atol=LOSS
    )
    assert largest_difference(before.weights, after.weights) <= WEIGHTS
