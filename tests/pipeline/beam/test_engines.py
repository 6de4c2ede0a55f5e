"""Job servers: a job that is not waited for, what an engine lacks, and the workers of two task managers in a pool."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import apache_beam as beam
import grpc
import psutil
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc, beam_job_api_pb2
from apache_beam.runners.portability import local_job_service

from tests.folders import write_files
from tests.root import ROOT
from tfx_estimator.pipeline.base.ending.signals import SignalledError
from tfx_estimator.pipeline.base.errors import TfxEstimatorError
from tfx_estimator.pipeline.config.beam import BeamSection

started, released = threading.Event(), threading.Event()
DIGITS = """\
name: digits
data: {dataset: digits, splits: {train: "train[:80%]", eval: "train[80%:]"}}
trainer: {model: mnist_cnn, train_steps: 200}
"""


def work(_: int) -> None:
    started.set()
    released.wait(60)


def end_once_started() -> None:
    started.wait(60)
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.timeout(120)
def test_a_signal_cancels_the_job():
    server = local_job_service.LocalJobServicer()
    section = BeamSection(
        runner="portable", job_endpoint=f"localhost:{server.start_grpc_server()}", environment_type="LOOPBACK"
    )
    threading.Thread(target=end_once_started).start()
    try:
        with pytest.raises(SignalledError), beam.Pipeline(options=PipelineOptions(section.pipeline_args())) as pipeline:
            _ = pipeline | beam.Create([1]) | beam.Map(work)
        (job,) = server._jobs.values()
        assert job.state == beam_job_api_pb2.JobState.CANCELLED
    finally:
        released.set()
        server.stop()


@pytest.mark.parametrize(
    ("program", "reason"), [("no-java", "no program no-java"), ("/bin/false", "does not start: .*error 1")]
)
def test_a_job_server_that_does_not_start_is_one_sentence(tmp_path, program, reason):
    (tmp_path / "server.jar").touch()
    section = BeamSection(
        runner="flink",
        job_server_jar=str(tmp_path / "server.jar"),
        environment_type="EXTERNAL",
        environment_config="localhost:1",
        options=[f"--job_server_java_launcher={program}"],
    )
    with (
        pytest.raises(TfxEstimatorError, match=reason) as caught,
        beam.Pipeline(options=PipelineOptions(section.pipeline_args())) as pipeline,
    ):
        _ = pipeline | beam.Create([1])
    assert "\n" not in caught.value.what


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("localhost", 0)) as server:
        return server.getsockname()[1]


def test_doctor_names_what_an_engine_lacks(tmp_path, cli, monkeypatch, closed_port):
    write_files(tmp_path, {"there.jar": "", "bin/java": "#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n"})
    (tmp_path / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    with socket.create_server(("localhost", 0)) as cluster:
        addresses = {
            "master": f"localhost:{cluster.getsockname()[1]}",
            "environment_config": f"localhost:{closed_port}",
        }
        section = {"runner": "flink", "job_server_jar": f"{tmp_path}/there.jar", "environment_type": "EXTERNAL"}
        declared = DIGITS + f"beam: {json.dumps({**section, **addresses})}\n"
        write_files(tmp_path, {"flink.yaml": declared})
        printed = cli("doctor", "--json", "--beam", str(tmp_path / "flink.yaml"), code=1)
    found = {each["name"]: each for each in json.loads(printed.out)["findings"]}
    assert {name: each["state"] for name, each in found.items()} == {
        "Java": "ok",
        "job server": "ok",
        "cluster": "ok",
        "worker pool": "failed",
    }
    assert "tfx_estimator.pipeline.worker_pool" in found["worker pool"]["todo"]


@pytest.fixture
def pool(closed_port) -> Iterator[tuple[int, psutil.Process]]:
    words = [sys.executable, "-m", "tfx_estimator.pipeline.worker_pool", f"--service_port={closed_port}"]
    with subprocess.Popen(words, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}) as process:
        yield closed_port, psutil.Process(process.pid)
        process.send_signal(signal.SIGTERM)


@pytest.mark.timeout(180)
def test_one_task_manager_does_not_stop_the_worker_of_another(pool):
    port, process = pool
    with grpc.insecure_channel(f"localhost:{port}") as channel, socket.create_server(("localhost", 0)) as manager:
        stub = beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(channel)
        grpc.channel_ready_future(channel).result(timeout=100)
        # Neither answers: the workers wait for it.
        for host in ("localhost", "127.0.0.1"):
            request = beam_fn_api_pb2.StartWorkerRequest(worker_id="1-1")
            for endpoint in (request.control_endpoint, request.logging_endpoint):
                endpoint.url = f"{host}:{manager.getsockname()[1]}"
            assert not stub.StartWorker(request).error
        stub.StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id="1-1"))
        workers = process.children()
        assert len(workers) == 2
        assert all(worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE for worker in workers)
        process.send_signal(signal.SIGTERM)
        _, alive = psutil.wait_procs(workers, timeout=30)
    assert not alive
