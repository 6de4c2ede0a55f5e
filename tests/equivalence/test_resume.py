"""A run that lost a worker and went on from a checkpoint ends as one that did not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.equivalence.conftest import MULTI_WORKER, largest_difference
from tests.equivalence.test_strategies import AS_SHIPPED, STEPS, as_shipped

pytestmark = [pytest.mark.equivalence, pytest.mark.timeout(300)]

CHECKPOINT, KILL = 20, 27


def test_a_worker_killed_at_a_step_changes_no_later_step(trainings, tmp_path):
    uninterrupted = as_shipped(MULTI_WORKER)
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
    # The second attempt went on from the checkpoint before the kill.
    *_, log = sorted((Path(after.run.uri) / "logs").glob("chief-0.attempt-*.progress.jsonl"))
    events = map(json.loads, log.read_text().splitlines())
    assert next(event["step"] for event in events if event["event"] == "step") == CHECKPOINT
    assert after.steps == before.steps
    # Every loss, those of steps that were done again included: the second attempt read the batches of its steps.
    np.testing.assert_allclose(
        [loss for _, loss in after.losses], [before.loss(step) for step, _ in after.losses], rtol=0, atol=AS_SHIPPED
    )
    assert largest_difference(before.weights, after.weights) <= AS_SHIPPED
