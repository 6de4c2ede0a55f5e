"""A project with its own `pipeline/`, `components/`, `data/` and `models/`, which a cluster's tasks import."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from tests.examples import copy_example

pytestmark = [pytest.mark.e2e, pytest.mark.cluster, pytest.mark.timeout(600)]


def check(environment, project: Path) -> None:
    """Checks the tasks' logs and the pushed model, which predicts."""
    (pushed,) = (project / "runs" / "cluster" / "serving").iterdir()
    logs = [log.name.partition(".")[0] for log in (project / "runs" / "cluster").rglob("*.log")]
    assert {"chief-0", "worker-0", "evaluator-0"} <= set(logs), logs
    # Any size is resized.
    Image.new("L", (40, 40)).save(project / "dark.png")
    output = environment.run("tfx-estimator", "predict", "runs/cluster", "dark.png", cwd=project)
    header, row, *_ = output.splitlines()
    assert header.startswith("file,class,score_")
    assert row.startswith("dark.png,")
    # The layer's name, from the project's own `pipeline`.
    assert b"of_my_own/kernel" in (pushed / "saved_model.pb").read_bytes()


def test_our_command_line_runs_it(environment, tmp_path):
    project = copy_example("cluster", tmp_path)
    assert "ok: cluster.yaml" in environment.run("tfx-estimator", "validate", "cluster.yaml", cwd=project)
    environment.run("tfx-estimator", "run", "--no-dry-run", "--no-report", "cluster.yaml", cwd=project)
    check(environment, project)


@pytest.mark.long
def test_tfx_runs_it_and_our_command_line_finds_it_cached(environment, tmp_path):
    project = copy_example("cluster", tmp_path)

    def tfx(*args: str) -> str:
        variables = {"TFX_ESTIMATOR_DECLARATION": "cluster.yaml"}
        return environment.run("tfx", *args, "--engine", "local", cwd=project, **variables)

    environment.run("tfx-estimator", "copy", "local_runner", "local_runner.py", cwd=project)
    created = tfx("pipeline", "create", "--pipeline_path", "local_runner.py")
    assert 'Pipeline "cluster" created successfully' in created
    tfx("run", "create", "--pipeline_name", "cluster")
    check(environment, project)
    environment.run("tfx-estimator", "run", "--no-dry-run", "--no-report", "cluster.yaml", cwd=project)
    (summary,) = (project / "runs" / "cluster").glob("logs/*/summary.json")
    states = {run["node"]: run["state"] for run in json.loads(summary.read_text())["components"]}
    assert states.pop("BaselineResolver") == "resolved"
    assert set(states.values()) == {"cached"}
    assert len(states) == 8
