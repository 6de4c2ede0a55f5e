"""Clusters whose tasks share a bucket alone, as the pods of a TrainJob may: exact steps, a killed task, one model."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.store.s3 import ADDRESS, S3, serving
from tests.store.test_s3 import EVERY, checkpoints, command, ended, pushed, start, summary
from tests.waiting import wait_until
from tfx_estimator.components.trainer.cluster.plan import free_ports

pytestmark = [pytest.mark.e2e, pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1200)]
STEPS = 600
EVALUATOR = "evaluator"


@pytest.fixture
def server():
    with serving() as server:
        yield server


@pytest.fixture
def begin(server: S3) -> Iterator[Callable[..., dict[str, subprocess.Popen[str]]]]:
    """Starts a task of each role, each with a home and temporary files of its own."""
    started: list[subprocess.Popen[str]] = []

    def begin(*given: Any) -> dict[str, subprocess.Popen[str]]:
        tasks = _begin(*given)
        started.extend(tasks.values())
        return tasks

    yield begin
    for task in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(task.pid, signal.SIGKILL)
        task.wait()


def _begin(place: Path, strategy: str, *roles: str) -> dict[str, subprocess.Popen[str]]:
    cluster = {role: [f"localhost:{port}"] for role, port in zip(roles, free_ports(len(roles))) if role != EVALUATOR}
    distribution = f"train: {{strategy: {strategy}}}, evaluator: {str(EVALUATOR in roles).lower()}, max_restarts: 0"
    more = (f"trainer.distribution={{{distribution}}}", f"trainer.train_steps={STEPS}", "evaluator.min_accuracy=0.9")
    words = [*command(f"{ADDRESS}/runs"), *(word for each in more for word in ("--set", each))]
    tasks = {}
    for role in roles:
        (own := place / role / "tmp").mkdir(parents=True)
        variables = {
            "TMPDIR": str(own),
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": role, "index": 0}}),
        }
        tasks[role] = start(place / role, "env", *(f"{name}={value}" for name, value in variables.items()), *words)
    return tasks


def log(place: Path, role: str) -> str:
    return (place / role / "run.log").read_text()


@pytest.mark.parametrize(
    ("strategy", "roles"),
    [
        ("multi_worker_mirrored", ("chief", "worker", EVALUATOR)),
        ("parameter_server", ("chief", "worker", "ps")),
    ],
)
def test_a_cluster_trains_exactly_its_steps_and_pushes_one_model(server: S3, begin, tmp_path, strategy, roles):
    tasks = begin(tmp_path, strategy, *roles)
    for role, task in tasks.items():
        ended(tmp_path / role, task)
    found = summary(tmp_path / "chief")
    assert found["blessed"]
    assert found["accuracy"] > 0.95
    # Asynchronous workers overshoot by a few.
    last = found["training"]["last_step"]
    assert last == STEPS if strategy == "multi_worker_mirrored" else STEPS <= last <= STEPS + 5
    for role in roles[1:]:
        assert f"{role}-0 has ended" in log(tmp_path, role)
    assert len(pushed(server)) == 1
    assert not [name for name in server.names("runs/") if "/cluster/" in name]


def test_a_cluster_that_lost_a_worker_goes_on_at_the_checkpoint_in_the_bucket(server: S3, begin, tmp_path):
    tasks = begin(tmp_path / "first", "multi_worker_mirrored", "chief", "worker")
    wait_until(lambda: max(checkpoints(server), default=0) >= 2 * EVERY, "two checkpoints", 600)
    os.killpg(tasks["worker"].pid, signal.SIGKILL)
    for task in tasks.values():
        task.wait(300)
    assert tasks["chief"].returncode != 0
    assert not pushed(server)
    tasks = begin(tmp_path / "second", "multi_worker_mirrored", "chief", "worker")
    for role, task in tasks.items():
        ended(tmp_path / "second" / role, task)
        found = re.search(rf"steps (\d+) to {STEPS}\b", log(tmp_path / "second", role))
        # The state may not name the last one yet.
        assert int(found[1]) >= EVERY
    assert len(pushed(server)) == 1
