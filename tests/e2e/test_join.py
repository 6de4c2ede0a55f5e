"""The same command in each task of a cluster, as `srun tfx-estimator run …` starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.root import ROOT
from tfx_estimator.components.trainer.cluster.ports import free_ports

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SETTINGS = ["trainer.train_steps=100", "trainer.distribution.train={strategy: multi_worker_mirrored}"]


def _start(workdir: Path, index: int, environment: dict[str, str], *settings: str) -> subprocess.Popen:
    overrides = [part for each in (*SETTINGS, *settings) for part in ("--set", each)]
    return subprocess.Popen(
        [sys.executable, "-m", "tfx_estimator", "run", "digits", "--workdir", str(workdir), *overrides],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_the_chief_runs_the_pipeline_and_the_others_train_with_it(workdir):
    addresses = [f"localhost:{port}" for port in free_ports(2)]
    runs = []
    for index in range(2):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        runs.append(_start(workdir.path, index, {"TF_CONFIG": json.dumps(task)}))
    try:
        said = [run.communicate(timeout=200)[0] for run in runs]
    finally:
        for run in runs:
            run.kill()
            run.wait()
    assert [run.returncode for run in runs] == [0, 0], said
    assert "worker-0 has done its part: steps 0 to 100" in said[1]
    results = workdir.summary("digits")
    assert results["training"]["last_step"] == 100
    assert results["accuracy"] > 0.9
    assert (Path(results["pushed"]) / "saved_model.pb").exists()
    logs = next((workdir.path / "digits" / "artifacts" / "Trainer" / "model_run").glob("*/logs"))
    tasks = {path.name.split(".")[0] for path in logs.glob("*.log")}
    assert tasks == {"chief-0", "worker-0", "exporter-0"}


def test_without_a_chief_a_task_ends_with_an_error(workdir):
    task = {"cluster": {"worker": ["localhost:1", "localhost:2"]}, "task": {"type": "worker", "index": 1}}
    run = _start(workdir.path, 1, {"TF_CONFIG": json.dumps(task)}, "trainer.start_timeout=1")
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 6, said
    assert "the chief of this cluster did not come" in said
    assert "Traceback" not in said
