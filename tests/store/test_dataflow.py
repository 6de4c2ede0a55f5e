"""Dataflow, up to its service: the job that Beam would ask for, staged in a bucket, and what its workers install."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.pipeline.beam.staged import install, unpickle_there
from tests.store.conftest import serving
from tests.store.front import BUCKET

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
# Ingest, with Dataflow; what there would be a request to the service for becomes a file.
INGEST = """
import json, sys
from tfx.types import standard_artifacts
from tfx_estimator.components.tfds_example_gen import executor, parameters
from tfx_estimator.pipeline.config.beam import BeamSection
from tfx_estimator.pipeline.config.data import DataSection
from tfx_estimator.pipeline.errors import PipelineError

section, bucket, folder = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
options = [f"--template_location={bucket}/job.json", "--job_name=ingest"]
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


def test_the_job_asks_for_what_was_declared_and_brings_the_package(tmp_path, binary):
    with serving(tmp_path, binary) as store:
        program = (sys.executable, "-c", INGEST, json.dumps(SECTION), f"gs://{BUCKET}", str(tmp_path))
        assert "did not write 4 files" in store.run(*program)
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
    (count,) = unpickle_there(install(Path(fetched[sdist]), tmp_path / "there"), fetched[pipeline])
    assert count > 3
