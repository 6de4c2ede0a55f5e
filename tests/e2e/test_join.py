"""The same command in each task of a cluster, as `srun tfx-estimator run …` starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Workdir
from tests.examples import commands, copy_example
from tfx_estimator.components.trainer.cluster.ports import free_ports

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def _environment(**variables: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **variables}


def test_the_chief_runs_the_pipeline_and_the_others_train_with_it(tmp_path):
    folder = copy_example("joined-cluster", tmp_path)
    (command,) = commands()["joined-cluster"]
    ports = " ".join(map(str, free_ports(2)))
    run = subprocess.Popen(
        command, cwd=folder, env=_environment(PORTS=ports), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        said, _ = run.communicate(timeout=200)
    finally:
        run.terminate()
        run.wait()
    assert run.returncode == 0, said
    assert "worker-0 has done its part: steps 0 to 100" in said
    results = Workdir(folder / "runs").summary("joined-cluster")
    assert results["training"]["last_step"] == 100
    assert results["accuracy"] > 0.9
    assert (Path(results["pushed"]) / "saved_model.pb").exists()
    logs = next((folder / "runs" / "joined-cluster" / "artifacts" / "Trainer" / "model_run").glob("*/logs"))
    tasks = {path.name.split(".")[0] for path in logs.glob("*.log")}
    assert tasks == {"chief-0", "worker-0", "exporter-0"}


def test_without_a_chief_a_task_ends_with_an_error(tmp_path):
    task = {"cluster": {"worker": ["localhost:1", "localhost:2"]}, "task": {"type": "worker", "index": 1}}
    folder = copy_example("joined-cluster", tmp_path)
    command = ["tfx-estimator", "run", "joined-cluster.yaml", "--set", "trainer.start_timeout=1"]
    environment = _environment(TF_CONFIG=json.dumps(task))
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 6, run.stdout
    said = run.stdout + run.stderr
    assert "the chief of this cluster did not come" in said
    assert "or unset TF_CONFIG if this is no task of a cluster" in said
    assert "Traceback" not in said
