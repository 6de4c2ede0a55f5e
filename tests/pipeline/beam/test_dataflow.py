"""Dataflow, up to its service: the job that Beam would ask for, and what its workers install."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests.root import ROOT
from tfx_estimator.pipeline.config.beam import BeamSection

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(280)]

SECTION: dict[str, Any] = {
    "project": "some-project-1",
    "region": "europe-west4",
    "temp_location": "gs://some-bucket/tmp",
    "sdk_container_image": "europe-docker.pkg.dev/some-project-1/images/tfx-estimator:1",
    "service_account_email": "worker@some-project-1.iam.gserviceaccount.com",
    "machine_type": "n1-standard-4",
    "num_workers": 2,
    "max_num_workers": 5,
    "disk_size_gb": 40,
    "subnetwork": "regions/europe-west4/subnetworks/inner",
    "use_public_ips": False,
    "labels": {"team": "vision"},
}

# Imports nothing but what was staged and the packages that it requires: the checkout is on the path of this environment
# by a .pth file, which `-S` leaves out.
THERE = """
import sys
staged, packages, *files = sys.argv[1:]
sys.path[:0] = [staged]
sys.path.append(packages)
import tfx_estimator
assert tfx_estimator.__file__.startswith(staged), tfx_estimator.__file__
from apache_beam import Pipeline
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

for file in files:
    proto = beam_runner_api_pb2.Pipeline()
    proto.ParseFromString(open(file, "rb").read())
    pipeline = Pipeline.from_runner_api(proto, FnApiRunner(), PipelineOptions([]))
    pipeline.to_runner_api()
    print(len(proto.components.transforms))
"""

# A run of digits that writes each pipeline of Beam's down before it runs it.
CAPTURING = """
import sys
from apache_beam.runners.portability.fn_api_runner import fn_runner
from tfx_estimator.pipeline.runners import local

folder, workdir = sys.argv[1:]
run, count = fn_runner.FnApiRunner.run_via_runner_api, iter(range(100))

def run_via_runner_api(self, proto, options):
    with open(f"{folder}/{next(count):02}.pb", "wb") as file:
        file.write(proto.SerializeToString())
    return run(self, proto, options)

fn_runner.FnApiRunner.run_via_runner_api = run_via_runner_api
local.main("digits", workdir)
"""


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for Google's storage: what is staged is in this folder, and nobody is asked."""
    from apache_beam.options.pipeline_options import GoogleCloudOptions
    from apache_beam.runners.dataflow.internal import apiclient

    folder = tmp_path / "storage"

    def stage_file(self: Any, place: str, name: str, stream: Any, *_: Any, **__: Any) -> None:
        path = folder / place.removeprefix("gs://").lstrip("/") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(stream.read())

    monkeypatch.setattr(apiclient.DataflowApplicationClient, "stage_file", stage_file)
    monkeypatch.setattr(GoogleCloudOptions, "_warn_if_soft_delete_policy_enabled", lambda *_: None)
    return folder


def install(sdist: Path, folder: Path) -> Path:
    """Installs as a worker does, without a network."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation", "--no-deps"]
    subprocess.run([*command, "--target", str(folder), str(sdist)], check=True, timeout=120)
    return folder


def unpickle_there(staged: Path, *files: Path) -> list[int]:
    command = [sys.executable, "-S", "-c", THERE, str(staged), sysconfig.get_path("purelib"), *map(str, files)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=200, cwd=staged.parent, env=_without_paths(), check=False
    )
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


def _without_paths() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_the_job_asks_for_what_was_declared_and_brings_the_package(storage, tmp_path):
    from tfx.types import standard_artifacts

    from tfx_estimator.components.tfds_example_gen import executor, parameters
    from tfx_estimator.pipeline.config.data import DataSection
    from tfx_estimator.pipeline.errors import PipelineError

    beam = BeamSection(
        runner="dataflow",
        dataflow=SECTION,
        # What there would be a request to the service for becomes a file.
        options=["--template_location=gs://some-bucket/job.json", "--no_auth", "--job_name=ingest"],
    )
    examples = standard_artifacts.Examples()
    examples.uri = str(tmp_path / "examples")
    context = executor.Executor.Context(beam_pipeline_args=beam.pipeline_args(), tmp_dir=str(tmp_path))
    data = DataSection(
        dataset="digits",
        data_dir=str(tmp_path / "data"),
        shards=2,
        splits={"train": "train[:90%]", "eval": "train[90%:]"},
    )
    with pytest.raises(PipelineError, match="did not write 4 files"):  # nobody did the job
        executor.Executor(context).Do({}, {"examples": [examples]}, parameters.to_properties(data, ""))

    job = json.loads((storage / "some-bucket" / "job.json").read_text())
    assert (job["name"], job["type"]) == ("ingest", "JOB_TYPE_BATCH")
    environment = job["environment"]
    assert environment["serviceAccountEmail"] == SECTION["service_account_email"]
    assert environment["tempStoragePrefix"].endswith("some-bucket/tmp") or environment["tempStoragePrefix"]
    (pool,) = environment["workerPools"]
    asked = {name: pool[name] for name in ("machineType", "numWorkers", "diskSizeGb", "subnetwork", "ipConfiguration")}
    assert asked == {
        "machineType": "n1-standard-4",
        "numWorkers": 2,
        "diskSizeGb": 40,
        "subnetwork": SECTION["subnetwork"],
        "ipConfiguration": "WORKER_IP_PRIVATE",
    }
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 5
    (image,) = {each["containerImage"] for each in pool["sdkHarnessContainerImages"]}
    assert image == SECTION["sdk_container_image"]
    labels = job["labels"]["additionalProperties"]
    assert {"key": "team", "value": "vision"} in labels

    staged = storage / "some-bucket" / "tmp" / "staging" / "ingest"
    folders = {path.parent for path in storage.rglob("pipeline.pb")}
    assert len(folders) == 1, staged
    (folder,) = folders
    (sdist,) = folder.glob("tfx_estimator-*.tar.gz")
    assert sdist.name in (folder / "extra_packages.txt").read_text()
    (count,) = unpickle_there(install(sdist, tmp_path / "there"), folder / "pipeline.pb")
    assert count > 3


@pytest.mark.long
def test_whatever_the_components_send_to_workers_is_in_the_package(tmp_path):
    from tfx_estimator.pipeline.beam.package import build_sdist

    captured = tmp_path / "captured"
    captured.mkdir()
    command = [sys.executable, "-c", CAPTURING, str(captured), str(tmp_path / "runs")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    files = sorted(captured.iterdir())
    # Ingest, statistics, transform, and the evaluator's.
    assert len(files) >= 4
    counts = unpickle_there(install(Path(build_sdist(str(tmp_path))), tmp_path / "there"), *files)
    assert len(counts) == len(files)
    assert min(counts) > 3
