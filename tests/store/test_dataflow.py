"""Dataflow, up to its service: Beam's job request, staging in a bucket, the packages of workers, and cancelling."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.beam.staged import install, unpickle_there
from tests.store.conftest import Store, serving
from tests.store.front import BUCKET, DATAFLOW_PORT
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(600)]

SECTION = {
    "project": "some-project",
    "region": "europe-west4",
    "temp_location": f"gs://{BUCKET}/tmp",
    "sdk_container_image": "europe-docker.pkg.dev/some-project/images/tfx-estimator:1",
    "service_account_email": "worker@some-project.iam.gserviceaccount.com",
    "machine_type": "n1-standard-4",
    "num_workers": 2,
    "max_num_workers": 5,
    "disk_size_gb": 40,
    "subnetwork": "regions/europe-west4/subnetworks/inner",
    "use_public_ips": False,
    "labels": {"team": "vision"},
}
# Ingest, with Dataflow.
INGEST = """
import json, sys
from tfx.types import standard_artifacts
from tfx_estimator.components.tfds_example_gen import executor, parameters
from tfx_estimator.pipeline.config.beam import BeamSection
from tfx_estimator.pipeline.config.data import DataSection
from tfx_estimator.pipeline.base.errors import PipelineError

section, bucket, folder, *options = json.loads(sys.argv[1]), *sys.argv[2:]
beam = BeamSection(runner="dataflow", dataflow=section, options=options)
examples = standard_artifacts.Examples()
examples.uri = f"{bucket}/examples"
splits = {"train": "train[:90%]", "eval": "train[90%:]"}
data = DataSection(dataset="digits", data_dir=f"{bucket}/tfds", shards=2, splits=splits)
context = executor.Executor.Context(beam_pipeline_args=beam.pipeline_args(), tmp_dir=folder)
try:
    executor.Executor(context).Do({}, {"examples": [examples]}, parameters.to_properties(data, ""))
except PipelineError as error:  # nobody did the job
    print(error)
"""
# A step's use of its engine: like TFX, enters a pipeline, and leaves it when the job has ended.
STEP = """
import json, sys
from apache_beam import Create, Pipeline
from tfx_estimator.pipeline.config.beam import BeamSection

arguments = BeamSection(runner="dataflow", dataflow=json.loads(sys.argv[1])).pipeline_args()
with Pipeline(argv=arguments) as pipeline:
    pipeline | Create([1])
"""


def _ingest(folder: Path) -> tuple[str, ...]:
    return (sys.executable, "-c", INGEST, json.dumps(SECTION), f"gs://{BUCKET}", str(folder))


def _step() -> tuple[str, ...]:
    return (sys.executable, "-c", STEP, json.dumps(SECTION))


@contextlib.contextmanager
def _dataflow(store: Store, folder: Path, *arguments: str) -> Iterator[Path]:
    """Runs a service that keeps jobs; yields its log of events."""
    log = folder / "jobs.log"
    log.touch()
    program = str(Path(__file__).with_name("dataflow_service.py"))
    process = store.popen(sys.executable, program, str(DATAFLOW_PORT), str(log), *arguments, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == "listening\n"
        yield log
    finally:
        process.kill()
        process.communicate()


def _wait_for(line: str, log: Path, process: subprocess.Popen, seconds: float = 200) -> None:
    def is_there() -> bool:
        assert process.poll() is None, f"the step has ended with {process.returncode}"
        return line in log.read_text()

    wait_until(is_there, lambda: f"{line} in\n{log.read_text()}", seconds, every=0.1)


def test_the_job_has_the_declared_options_and_the_package(tmp_path, binary):
    with serving(tmp_path, binary) as store:
        # Writes a file instead of the request to the service.
        template = (f"--template_location=gs://{BUCKET}/job.json", "--job_name=ingest")
        assert "did not write 4 files" in store.run(*_ingest(tmp_path), *template)
        job = json.loads(store.read("job.json"))
        (pipeline,) = [name for name in store.names("tmp/staging/") if name.endswith("pipeline.pb")]
        folder = pipeline.rpartition("/")[0]
        (sdist,) = [name for name in store.names(f"{folder}/") if "tfx_estimator-" in name]
        assert sdist.rpartition("/")[2] in store.read(f"{folder}/extra_packages.txt").decode()
        fetched = {name: tmp_path / name.rpartition("/")[2] for name in (pipeline, sdist)}
        for name, path in fetched.items():
            path.write_bytes(store.read(name))

    assert (job["name"], job["type"]) == ("ingest", "JOB_TYPE_BATCH")
    environment = job["environment"]
    assert environment["serviceAccountEmail"] == SECTION["service_account_email"]
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
    assert {each["containerImage"] for each in pool["sdkHarnessContainerImages"]} == {SECTION["sdk_container_image"]}
    assert job["labels"]["team"] == "vision"
    experiments = environment["sdkPipelineOptions"]["options"]["experiments"]
    (count,) = unpickle_there(install(Path(fetched[sdist]), tmp_path / "there", experiments), fetched[pipeline])
    assert count > 3


@pytest.mark.parametrize("line", ["JOB_STATE_RUNNING", "asked to create a job"])
def test_a_step_that_is_cancelled_cancels_its_job(tmp_path, binary, line):
    """Also before the service's response, when the job's id is unknown."""
    seconds = 0.0 if line == "JOB_STATE_RUNNING" else 3.0
    with serving(tmp_path, binary) as store, _dataflow(store, tmp_path, str(seconds)) as log:
        output = tmp_path / "output"
        with output.open("w") as file:
            step = store.popen(*_step(), stdout=file, stderr=file)
            _wait_for(line, log, step)
            step.send_signal(signal.SIGTERM)
            code = step.wait(60)
    assert code != 0
    events = log.read_text().splitlines()
    assert [each for each in events if each.startswith("wanted")] == ["wanted JOB_STATE_CANCELLED"], output.read_text()
    # A retry meets no running job.
    assert events[-1] == "JOB_STATE_CANCELLED"
    assert "ended by SIGTERM" in output.read_text()


def test_a_job_that_has_failed_is_not_cancelled(tmp_path, binary):
    with (
        serving(tmp_path, binary) as store,
        _dataflow(store, tmp_path, "0", "JOB_STATE_FAILED") as log,
        (tmp_path / "output").open("w") as file,
    ):
        step = store.popen(*_step(), stdout=file, stderr=file)
        code = step.wait(200)
    assert code != 0
    assert "no such bucket" in (tmp_path / "output").read_text()
    assert "wanted" not in log.read_text()


def test_ctrl_c_of_a_run_cancels_its_job(tmp_path, binary):
    with serving(tmp_path, binary) as store, _dataflow(store, tmp_path, "0") as log:
        values = {"beam": {"runner": "dataflow", "dataflow": SECTION}, "data.data_dir": f"gs://{BUCKET}/tfds"}
        sets = [word for name, value in values.items() for word in ("--set", f"{name}={json.dumps(value)}")]
        command = (sys.executable, "-m", "tfx_estimator", "run", "digits", "--workdir", f"gs://{BUCKET}/runs", *sets)
        output = tmp_path / "output"
        with output.open("w") as file:
            run = store.popen(*command, stdout=file, stderr=file)
            _wait_for("JOB_STATE_RUNNING", log, run)
            run.send_signal(signal.SIGINT)
            code = run.wait(60)
    assert code == 130, output.read_text()
    assert "wanted JOB_STATE_CANCELLED" in log.read_text()
    assert log.read_text().splitlines()[-1] == "JOB_STATE_CANCELLED"
    assert "cancelling the Dataflow job" in output.read_text()
    assert "interrupted in component TfdsExampleGen" in output.read_text()
