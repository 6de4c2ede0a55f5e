"""The same command in each task of a cluster, as `srun tfx-estimator run …` starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Workdir
from tests.examples import commands, copy_example
from tfx_estimator.components.trainer.cluster.plan import free_ports

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_the_chief_runs_the_pipeline_and_the_others_train_with_it(tmp_path):
    folder = copy_example("joined-cluster", tmp_path)
    (command,) = commands()["joined-cluster"]
    ports = " ".join(map(str, free_ports(2)))
    # With `tfx-estimator` on the path.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PORTS": ports}
    run = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
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
