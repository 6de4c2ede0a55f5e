"""Beam on Google's Dataflow, with this package on its workers, and no job that goes on when nobody waits for it."""

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

# No requirements: the workers' image has them, and pip need not ask anybody.
_SETUP = """\
from setuptools import find_packages, setup

setup(name="tfx-estimator", version={version!r}, packages=find_packages(), include_package_data=True)
"""
_LEFT_OUT = ("__pycache__",)

# From 25.3 on pip builds in an environment of its own, into which it would fetch setuptools; the image has it.
# Source: https://github.com/apache/beam/pull/37331, of Beam 2.72.
NO_ISOLATION = "pip_no_build_isolation"
# For workers to end: less than the half a minute that services leave a container.
_END_SECONDS, _POLL_SECONDS = 20.0, 1.0

logger = get_logger("beam")


def bring_package(options: PipelineOptions, folder: str) -> None:
    """Has the workers install this package, without a network; until the job is created it lies in a folder."""
    setup = options.view_as(SetupOptions)
    setup.extra_packages = [*(setup.extra_packages or ()), build_sdist(folder)]
    options.view_as(DebugOptions).add_experiment(NO_ISOLATION)


class DataflowRunner(dataflow_runner.DataflowRunner):
    """Beam's, which stages this package as well, and cancels a job that it does not see to its end.

    Beam's checks know it by this name.
    """

    _client: Any = None
    _created: Optional[Any] = None

    @property
    def dataflow_client(self) -> Any:
        """What asks the service; Beam makes it while the pipeline is run."""
        return self._client

    @dataflow_client.setter
    def dataflow_client(self, client: Any) -> None:
        submit = client.submit_job_description

        def submit_whole(job: Any) -> Any:
            # A job whose answer nobody took would be known to nobody.
            with shared_status.patient(), signals.held():
                self._created = submit(job)
                return self._created

        client.submit_job_description = submit_whole
        self._client = client

    def run_pipeline(self, pipeline: Pipeline, options: PipelineOptions, *args: Any, **kwargs: Any) -> Any:
        """Runs it to its end; where a signal comes, the job is cancelled."""
        self._created = None
        with signals.handled():
            try:
                with tempfile.TemporaryDirectory() as folder:
                    bring_package(options, folder)
                    result = super().run_pipeline(pipeline, options, *args, **kwargs)
                # Here, where it is known how: TFX, too, does nothing else with what it gets.
                if not options.view_as(StandardOptions).no_wait_until_finish:
                    result.wait_until_finish()
                return result
            except dataflow_runner.DataflowRuntimeException:
                raise  # it has ended by itself
            except BaseException:
                if self._created is not None:
                    # Where something else went wrong, a signal meanwhile must not leave the job at work.
                    with shared_status.patient(), signals.held():
                        self._cancel(self._created, options.view_as(GoogleCloudOptions))
                raise

    def _cancel(self, created: Any, options: GoogleCloudOptions) -> None:
        """Cancels the job, and waits a little for its workers: who tries again writes to the same places."""
        job = created.id
        command = f"gcloud dataflow jobs cancel {job} --project {options.project} --region {options.region}"
        # At once: a second signal, or the end of the container, leaves no time to say it.
        logger.warning(
            f"cancelling the Dataflow job {job}, which nobody would wait for; "
            f"if nothing more is said of it, cancel it yourself: {command}"
        )
        states: list[str] = []
        wrong: list[Exception] = []

        def cancel() -> None:
            until = time.monotonic() + _END_SECONDS
            try:
                # A client of its own: the thread that follows the job may be in the middle of a request of the other
                # one's, whose connection takes one at a time.
                asking = SimpleNamespace(dataflow_client=type(self._client)(options))
                result = dataflow_runner.DataflowPipelineResult(created, asking)
                states.append(result.cancel())
                while not PipelineState.is_terminal(states[-1]) and time.monotonic() < until:
                    time.sleep(_POLL_SECONDS)
                    states.append(result.state)
            except Exception as error:  # of Beam's client, whatever it is
                wrong.append(error)

        # Beam's client asks a service that does not answer for up to ten minutes.
        thread = threading.Thread(target=cancel, daemon=True)
        thread.start()
        thread.join(_END_SECONDS)
        if wrong or not states:
            why = wrong[0] if wrong else f"no answer within {_END_SECONDS:.0f} s"
            logger.warning(f"the Dataflow job {job} may go on: {why}; cancel it: {command}")
        elif PipelineState.is_terminal(states[-1]):
            logger.warning(f"the Dataflow job {job} has ended: {states[-1]}")
        else:
            logger.warning(f"the Dataflow job {job} is {states[-1]}: its workers may still write for a while")


def build_sdist(folder: str) -> str:
    """Writes it into a folder, from what is installed; the same files give the same bytes."""
    version = importlib.metadata.version("tfx-estimator")
    name = f"tfx_estimator-{version}"
    # As setuptools finds them: `src/tfx_estimator` has links to its folders.
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
