"""The whole MNIST on a Beam job server with two worker processes: the outputs equal the direct runner's."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import tensorflow_data_validation as tfdv
import yaml
from google.protobuf import json_format
from PIL import Image

from tests.e2e.conftest import Workdir
from tests.root import run_python

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]

SHORT = ("--set", "trainer.train_steps=50", "--set", "evaluator.min_accuracy=0", "--set", "data.shards=8")

# Beam's job service gives each job one worker.
JOB_SERVICE = """
import signal, sys
from apache_beam.runners.portability import local_job_service
from apache_beam.runners.portability.fn_api_runner import fn_runner

class TwoWorkers(fn_runner.FnApiRunner):
    def run_stages(self, *args):
        self._num_workers = 2
        return super().run_stages(*args)

local_job_service.fn_runner.FnApiRunner = TwoWorkers
server = local_job_service.LocalJobServicer()
print(server.start_grpc_server(), flush=True)
signal.sigwait([signal.SIGTERM])
server.stop()
"""
WORKER_POOL = """
import signal, sys
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer
address, server = BeamFnExternalWorkerPoolServicer.start(use_process=True)
print(address.rpartition(":")[2], flush=True)
signal.sigwait([signal.SIGTERM])
server.stop(0)
"""


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory, real_data_dir: str) -> Workdir:
    workdir = Workdir(tmp_path_factory.mktemp("direct") / "runs")
    workdir.run("mnist", *SHORT, "--set", f"data.data_dir={real_data_dir}", seconds=600)
    return workdir


@contextlib.contextmanager
def server(program: str) -> Iterator[tuple[int, psutil.Process]]:
    """A Beam server: its port and process; it starts `python` by that name."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env={**os.environ, "PATH": path}
    ) as process:
        try:
            yield int(process.stdout.readline()), psutil.Process(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)


@contextlib.contextmanager
def engine() -> Iterator[tuple[dict[str, str], set[int]]]:
    """A job server with a pool of workers: the section `beam` for it, and the process ids of the workers so far."""
    seen: set[int] = set()
    done = threading.Event()
    with server(JOB_SERVICE) as (jobs, _), server(WORKER_POOL) as (pool, process):

        def watch() -> None:
            while not done.wait(0.2):
                with contextlib.suppress(psutil.Error):
                    seen.update(child.pid for child in process.children())

        thread = threading.Thread(target=watch)
        thread.start()
        place = {"job_endpoint": f"localhost:{jobs}", "environment_config": f"localhost:{pool}"}
        try:
            yield {"runner": "portable", "environment_type": "EXTERNAL", **place}, seen
        finally:
            done.set()
            thread.join()


def digests(workdir: Workdir, *of: str) -> dict[str, str]:
    """Returns hashes of a component's files, by their paths without the execution's number."""
    (folder,) = workdir.path.glob("*/artifacts")
    (folder,) = folder.joinpath(*of).iterdir()
    files = {path for path in folder.rglob("*") if path.is_file()}
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def statistics(workdir: Workdir) -> dict[str, Any]:
    """Returns statistics by split, as plain values by the path of the field."""

    def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in pairs:
            if isinstance(each, (dict, list)):
                yield from leaves(each, f"{path}.{key}")
            else:
                yield f"{path}.{key}", each

    (folder,) = workdir.path.glob("*/artifacts/StatisticsGen/statistics/*")
    return {
        path.parent.name: dict(leaves(json_format.MessageToDict(tfdv.load_stats_binary(str(path))), ""))
        for path in folder.rglob("*.pb")
    }


def compare(remote: Workdir, direct: Workdir, name: str) -> None:
    examples = digests(remote, "TfdsExampleGen", "examples")
    assert examples == digests(direct, "TfdsExampleGen", "examples")
    found, expected = statistics(remote), statistics(direct)
    assert set(found) == {"Split-train", "Split-eval"}
    for split, values in found.items():
        # Quantiles too are equal. These two are sums of batches whose sizes Beam derives from the time of each batch:
        # their last digit differs between two runs of one engine as well.
        summed = {path for path in values if path.endswith((".mean", ".stdDev"))}
        assert len(summed) >= 2
        assert len(values) > 100
        wanted = {
            path: pytest.approx(each, rel=1e-12) if path in summed else each for path, each in expected[split].items()
        }
        assert values == wanted
    assert remote.summary(name)["evaluated"] == direct.summary(name)["evaluated"]
    # The last digits of the weights change the class of so few images.
    accuracies = [each.summary(name)["accuracy"] for each in (remote, direct)]
    assert accuracies[0] == pytest.approx(accuracies[1], abs=0.002)


def test_a_job_server_with_a_worker_pool_has_equal_outputs(workdir, direct, real_data_dir):
    with engine() as (fields, seen):
        remote = [word for name, value in fields.items() for word in ("--set", f"beam.{name}={value}")]
        workdir.run("mnist", *SHORT, *remote, "--set", f"data.data_dir={real_data_dir}", seconds=600)
    # Two per Beam component: ingest, statistics, transform, evaluation.
    assert len(seen) >= 8
    compare(workdir, direct, "mnist")
    assert len(digests(workdir, "TfdsExampleGen", "examples")) == 16
    assert workdir.summary("mnist")["evaluated"] == 10_000


def test_predictions_of_two_workers_equal_those_of_this_process(digits_run, served_digits, tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    for number, image in enumerate(served_digits["images"]):
        Image.fromarray(image[..., 0]).save(images / f"{number:03}.png")
    (images / "broken.png").touch()
    inputs = [str(images), *map(str, sorted(digits_run.examples.iterdir()))]

    def predict(name: str, *words: str) -> list[dict[str, str]]:
        model, output = str(digits_run.logs.parent.parent), tmp_path / name
        done = run_python("-m", "tfx_estimator", "predict", model, *inputs, "--output", str(output), *words, code=3)
        assert f"damaged file {images}/broken.png: " in done.stderr
        return list(csv.DictReader(output.read_text().splitlines()))

    declared = yaml.safe_load((digits_run.logs / "declaration.yaml").read_text())
    with engine() as (fields, seen):
        (tmp_path / "engine.yaml").write_text(yaml.safe_dump({**declared, "beam": fields}))
        remote = predict("there.csv", "--beam", str(tmp_path / "engine.yaml"))
    assert len(seen) >= 2
    local = predict("here.csv")
    assert len(remote) == 2 * 359
    assert [(row["file"], row["class"]) for row in remote] == [(row["file"], row["class"]) for row in local]
    for one, other in zip(remote, local, strict=True):
        assert float(one["score_3"]) == pytest.approx(float(other["score_3"]), abs=1e-6)
