"""The package that Dataflow's workers install."""

from __future__ import annotations

import tarfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from apache_beam.options.pipeline_options import DebugOptions, GoogleCloudOptions, PipelineOptions, SetupOptions

from tests.pipeline.beam.staged import install, unpickle_there
from tests.root import run_python
from tfx_estimator.pipeline import beam
from tfx_estimator.pipeline.beam import build_sdist, stage_package

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


def test_the_package_is_the_same_file_each_time(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    built = [Path(build_sdist(str(tmp_path / name))) for name in ("a", "b")]
    assert built[0].read_bytes() == built[1].read_bytes()
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"setup.py", "tfx_estimator/pipeline/presets/digits.yaml", "tfx_estimator/model_fn/__init__.py"} <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith("/")]


def test_a_service_that_does_not_answer_is_not_waited_for(monkeypatch, caplog):
    answer = threading.Event()

    class Silent:
        def __init__(self, options: GoogleCloudOptions) -> None:
            answer.wait(60)

    monkeypatch.setattr(beam, "_END_SECONDS", 0.2)
    runner = beam.DataflowRunner()
    monkeypatch.setattr(runner, "_client", object.__new__(Silent))
    options = GoogleCloudOptions(["--project=some-project", "--region=europe-west4"])
    started = time.monotonic()
    with caplog.at_level("WARNING", "absl.tfx_estimator"):
        runner._cancel(SimpleNamespace(id="a-job"), options)
    assert time.monotonic() - started < 20
    answer.set()
    first, last = [each.getMessage() for each in caplog.records if "a-job" in each.getMessage()]
    command = "cancel it yourself: gcloud dataflow jobs cancel a-job --project some-project --region europe-west4"
    assert first.endswith(command)
    assert "the Dataflow job a-job may still run: no answer within" in last


@pytest.mark.cluster
@pytest.mark.long
def test_whatever_the_components_send_to_workers_is_in_the_package(tmp_path):
    captured = tmp_path / "captured"
    captured.mkdir()
    run_python("-c", CAPTURING, str(captured), str(tmp_path / "runs"), code=0)
    files = sorted(captured.iterdir())
    # Ingest, statistics, transform, and the evaluator's.
    assert len(files) >= 4
    stage_package(options := PipelineOptions([]), str(tmp_path))
    (sdist,) = options.view_as(SetupOptions).extra_packages
    there = install(Path(sdist), tmp_path / "there", options.view_as(DebugOptions).experiments)
    counts = unpickle_there(there, *files)
    assert len(counts) == len(files)
    assert min(counts) > 3
