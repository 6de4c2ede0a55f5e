"""A run in MLflow, read back by MLflow's own client from a file store, a database, and a server."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Finished
from tests.root import run_python
from tfx_estimator.components.trainer.cluster.plan import free_ports
from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.report.training import read_training
from tfx_estimator.pipeline.run import tracking

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

# If the environment has no MLflow: `pip install --target FOLDER/site-packages -c VERSIONS mlflow`.
FOLDER = os.environ.get("TFX_ESTIMATOR_MLFLOW", "")
READ = """\
import json, sys
sys.path += sys.argv[1:2]
from mlflow import MlflowClient
records = []
for uri in sys.argv[2:]:
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("digits")
    (run,) = client.search_runs([experiment.experiment_id])
    curves = {}
    for name in run.data.metrics:
        history = client.get_metric_history(run.info.run_id, name)
        curves[name] = sorted((each.step, each.value, each.timestamp) for each in history)
    files = [each.path for each in client.list_artifacts(run.info.run_id)]
    records.append({
        "status": run.info.status, "name": run.info.run_name, "params": run.data.params, "tags": run.data.tags,
        "metrics": run.data.metrics, "curves": curves, "files": files, "artifacts": run.info.artifact_uri,
        "report": open(client.download_artifacts(run.info.run_id, "report.html")).read(),
        "seconds": (run.info.end_time - run.info.start_time) / 1000,
    })
print(json.dumps(records))
"""


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Adds MLflow at the end of the Python path."""
    monkeypatch.setattr(sys, "path", [*sys.path, *([FOLDER] if FOLDER else [])])
    if not FOLDER:
        pytest.importorskip("mlflow")
    return {**os.environ, "MLFLOW_ALLOW_FILE_STORE": "true", "PYTHONPATH": FOLDER}


@pytest.fixture
def read(environment: dict[str, str]) -> Callable[..., Any]:
    """Returns the records at each address."""

    def run(*uris: str) -> Any:
        done = run_python("-c", READ, FOLDER, *uris, code=0, **environment)
        return json.loads(done.stdout.splitlines()[-1])

    return run


def check(record: Any, finished: Finished) -> None:
    """Checks the run in MLflow against its summary, its declaration and its events."""
    summary = finished.summary
    assert (record["status"], record["name"]) == ("FINISHED", finished.logs.name)
    assert record["seconds"] == pytest.approx(summary["seconds"], abs=0.01)
    assert record["metrics"]["accuracy"] == summary["accuracy"]
    assert record["metrics"]["loss"] == summary["loss"]
    assert record["metrics"]["training/last_step"] == 600
    for metric, curves in read_training(summary["model_run"]).curves.items():
        for who, curve in curves.items():
            name = f"{who}/{metric.replace('/', '_')}"
            times = [int(time * 1000) for time in curve.times]
            assert record["curves"][name] == [list(each) for each in zip(curve.steps, curve.values, times)]
    assert len(record["curves"]["train/loss"]) > 10
    assert len({time for *_, time in record["curves"]["train/loss"]}) > 10
    assert record["curves"]["eval/accuracy"][-1][:2] == [600, pytest.approx(summary["accuracy"])]
    assert record["params"]["trainer.optimizer.learning_rate"] == "0.02"
    assert record["params"]["trainer.seed"] == "42"
    assert record["tags"]["pushed"] == summary["pushed"]
    assert record["tags"]["blessed"] == "True"
    assert sorted(record["files"]) == ["declaration.yaml", "model_card.md", "report.html", "summary.json"]
    assert record["report"] == (finished.logs / "report.html").read_text()


@pytest.mark.long
def test_a_run_is_in_a_file_store_and_in_a_database_with_its_files(digits_run: Finished, read, tmp_path: Path) -> None:
    uri, folder = f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "runs of mine"
    for place in (uri, str(folder)):
        assert tracking._write(place, str(digits_run.logs), 120).startswith("experiment digits, run ")
    for record in (both := read(uri, folder.as_uri())):
        check(record, digits_run)
    assert both[0]["artifacts"].startswith(f"file://{tmp_path}/mlruns/digits/")


def test_an_unreachable_server_is_reported_soon(digits_run: Finished, environment) -> None:
    start = time.monotonic()
    with pytest.raises(PipelineError, match="Connection refused"):
        tracking._write(f"http://127.0.0.1:{free_ports(1)[0]}", str(digits_run.logs), tracking.SECONDS)
    assert time.monotonic() - start < tracking.SECONDS


@contextlib.contextmanager
def server(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    port = free_ports(1)[0]
    words = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    words += ["--backend-store-uri", f"sqlite:///{folder}/served.db", "--artifacts-destination", str(folder / "kept")]
    with open(folder / "server.log", "w") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, env=environment, cwd=folder, start_new_session=True)
    try:
        address = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=5):
                break
            assert process.poll() is None, (folder / "server.log").read_text()
            assert time.monotonic() < deadline, (folder / "server.log").read_text()
            time.sleep(0.2)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.long
def test_a_run_is_in_a_server(digits_run: Finished, read, environment, tmp_path: Path) -> None:
    with server(tmp_path, environment) as address:
        tracking._write(address, str(digits_run.logs), 120)
        (record,) = read(address)
    check(record, digits_run)
    assert (tmp_path / "kept").is_dir()
