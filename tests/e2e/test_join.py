"""The same command in each task of a cluster, like with `srun tfx-estimator run …`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Finished
from tests.examples import commands, copy_example
from tfx_estimator.components.trainer.cluster.plan import free_ports

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_the_chief_runs_the_pipeline_and_the_others_train_with_it(digits_run: Finished, tmp_path):
    folder, workdir = copy_example("joined-cluster", tmp_path), digits_run.workdir
    (command,) = commands()["joined-cluster"]
    # On the examples of that run: the same name and number of files.
    for each in ("name=digits", "data.shards=2", "evaluator.max_accuracy_drop=null"):
        command += ["--set", each]
    command += ["--workdir", str(workdir.path), "--no-report"]
    ports = " ".join(map(str, free_ports(2)))
    # With `tfx-estimator` on the path.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PORTS": ports}
    run = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        output, _ = run.communicate(timeout=200)
    finally:
        run.terminate()
        run.wait()
    assert run.returncode == 0, output
    assert "worker-0 has ended: steps 0 to 100" in output
    results, states = workdir.summary("digits"), workdir.states("digits")
    assert (states["Transform"], states["Trainer"]) == ("cached", "ran")
    assert results["training"]["last_step"] == 100
    assert results["accuracy"] > 0.9
    assert (Path(results["pushed"]) / "saved_model.pb").exists()
    tasks = {path.name.split(".")[0] for path in Path(results["model_run"], "logs").glob("*.log")}
    assert tasks == {"chief-0", "worker-0", "exporter-0"}
