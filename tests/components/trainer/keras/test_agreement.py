"""Two synchronous tasks stop after the same step, whenever a stop is requested."""

from __future__ import annotations

import json

import pytest

from tests.root import ROOT, finish, start_python
from tfx_estimator.components.trainer.cluster.plan import free_ports

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

ROUNDS = 40


@pytest.mark.long
def test_two_tasks_stop_after_the_same_step_at_any_moment(tmp_path):
    addresses = ",".join(f"localhost:{port}" for port in free_ports(2))
    arguments = (addresses, str(tmp_path), str(ROUNDS))
    module = "tests.components.trainer.keras.stopping"
    outputs = finish(*(start_python("-m", module, str(index), *arguments, cwd=ROOT) for index in range(2)))
    chief, worker = (json.loads(out.splitlines()[-1]) for out in outputs)
    assert chief == worker
    assert len(chief) == ROUNDS
    # The checkpoint is of the last step, which differs between rounds.
    assert all(step == saved for step, saved in chief)
    assert len({step for step, _ in chief}) > 4
