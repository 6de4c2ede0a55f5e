"""Beam on Google's Dataflow, with this package on its workers, and cancellation of jobs that are not waited for."""

from __future__ import annotations

import gzip
import importlib.metadata
import io
import tarfile
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

from apache_beam import Pipeline
from apache_beam.options.pipeline_options import (
    DebugOptions,
    GoogleCloudOptions,
    PipelineOptions,
    SetupOptions,
    StandardOptions,
)
from apache_beam.runners.dataflow import dataflow_runner
from apache_beam.runners.runner import PipelineState

import tfx_estimator
from tfx_estimator.pipeline.base.ending import shared_status, signals
from tfx_estimator.pipeline.base.log import get_logger

# No requirements: the workers' image has them, and pip needs no network.
_SETUP = """\
from setuptools import find_packages, setup

setup(name="tfx-estimator", version={version!r}, packages=find_packages(), include_package_data=True)
"""
_LEFT_OUT = ("__pycache__",)

# From 25.3 on, pip builds in an isolated environment, for which it would fetch setuptools; the image has it.
# Source: https://github.com/apache/beam/pull/37331, of Beam 2.72.
NO_ISOLATION = "pip_no_build_isolation"
# Time for workers to end: less than a container's usual grace period of half a minute.
_END_SECONDS, _POLL_SECONDS = 20.0, 1.0

logger = get_logger("beam")


def stage_package(options: PipelineOptions, folder: str) -> None:
    """Makes the workers install this package without a network, from an sdist that is written to the folder."""
    setup = options.view_as(SetupOptions)
    setup.extra_packages = [*(setup.extra_packages or ()), build_sdist(folder)]
    options.view_as(DebugOptions).add_experiment(NO_ISOLATION)


class DataflowRunner(dataflow_runner.DataflowRunner):
    """Beam's runner, which also stages this package, and cancels a job that it does not follow to its end.

    Beam's checks depend on this class name.
    """

    _client: Any = None
    _created: Optional[Any] = None

    @property
    def dataflow_client(self) -> Any:
        """The service's client, which Beam sets while the pipeline is run."""
        return self._client

    @dataflow_client.setter
    def dataflow_client(self, client: Any) -> None:
        submit = client.submit_job_description

        def submit_whole(job: Any) -> Any:
            # Without the answer, the ID of the created job would be unknown.
            with shared_status.patient(), signals.held():
                self._created = submit(job)
                return self._created

        client.submit_job_description = submit_whole
        self._client = client

    def run_pipeline(self, pipeline: Pipeline, options: PipelineOptions, *args: Any, **kwargs: Any) -> Any:
        """Runs the pipeline to its end; a signal cancels the job."""
        self._created = None
        with signals.handled():
            try:
                with tempfile.TemporaryDirectory() as folder:
                    stage_package(options, folder)
                    result = super().run_pipeline(pipeline, options, *args, **kwargs)
                # Waits here, where the job can be cancelled: TFX does nothing else with the result than waiting, too.
                if not options.view_as(StandardOptions).no_wait_until_finish:
                    result.wait_until_finish()
                return result
            except dataflow_runner.DataflowRuntimeException:
                raise  # the job has ended
            except BaseException:
                if self._created is not None:
                    # After another error, a signal must not interrupt the cancellation.
                    with shared_status.patient(), signals.held():
                        self._cancel(self._created, options.view_as(GoogleCloudOptions))
                raise

    def _cancel(self, created: Any, options: GoogleCloudOptions) -> None:
        """Cancels the job, and waits briefly for its workers: a retry writes to the same places."""
        job = created.id
        command = f"gcloud dataflow jobs cancel {job} --project {options.project} --region {options.region}"
        # Logged first: a second signal, or the end of the container, leaves no time for it later.
        logger.warning(
            f"cancelling the Dataflow job {job}, which is no longer waited for; "
            f"if no result is reported, cancel it yourself: {command}"
        )
        states: list[str] = []
        errors: list[Exception] = []

        def cancel() -> None:
            until = time.monotonic() + _END_SECONDS
            try:
                # A separate client: the thread that follows the job may be using the other one, whose connection takes
                # one request at a time.
                runner = SimpleNamespace(dataflow_client=type(self._client)(options))
                result = dataflow_runner.DataflowPipelineResult(created, runner)
                states.append(result.cancel())
                while not PipelineState.is_terminal(states[-1]) and time.monotonic() < until:
                    time.sleep(_POLL_SECONDS)
                    states.append(result.state)
            except Exception as error:  # Beam's client raises errors of many kinds
                errors.append(error)

        # Beam's client retries an unavailable service for up to ten minutes.
        thread = threading.Thread(target=cancel, daemon=True)
        thread.start()
        thread.join(_END_SECONDS)
        if errors or not states:
            why = errors[0] if errors else f"no answer within {_END_SECONDS:.0f} s"
            logger.warning(f"the Dataflow job {job} may still run: {why}; cancel it: {command}")
        elif PipelineState.is_terminal(states[-1]):
            logger.warning(f"the Dataflow job {job} has ended: {states[-1]}")
        else:
            logger.warning(f"the Dataflow job {job} is {states[-1]}: its workers may still write for a while")


def build_sdist(folder: str) -> str:
    """Writes a reproducible sdist of the installed package into a folder; returns its path."""
    version = importlib.metadata.version("tfx-estimator")
    name = f"tfx_estimator-{version}"
    # Follows links, as setuptools does: `src/tfx_estimator` has links to its folders.
    package = Path(tfx_estimator.__file__).parent
    files = {f"tfx_estimator/{path}": (package / path).read_bytes() for path in _files(package, Path())}
    files["setup.py"] = _SETUP.format(version=version).encode()
    files["MANIFEST.in"] = b"graft tfx_estimator\n"
    files["PKG-INFO"] = f"Metadata-Version: 2.1\nName: tfx-estimator\nVersion: {version}\n".encode()
    target = Path(folder) / f"{name}.tar.gz"
    with gzip.GzipFile(target, "wb", mtime=0) as file, tarfile.open(fileobj=file, mode="w") as archive:
        for path in sorted(files):
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size = len(files[path])
            archive.addfile(entry, io.BytesIO(files[path]))
    return str(target)


def _files(package: Path, folder: Path) -> list[Path]:
    found = []
    for path in sorted((package / folder).iterdir()):
        relative = folder / path.name
        if path.is_dir() and path.name not in _LEFT_OUT:
            found += _files(package, relative)
        elif path.is_file():
            found.append(relative)
    return found
