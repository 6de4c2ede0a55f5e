"""Checks that the engine of a declaration's section `beam` can be reached from here."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator

from tfx_estimator.pipeline.config.beam import ENGINES, BeamSection
from tfx_estimator.pipeline.doctor.machine import FAILED, Finding, ok

_SECONDS = 10.0
# Flink 1.19 and Spark 3.5 run with these.
_JAVA = (11, 17)


def check_engine(beam: BeamSection) -> Iterator[Finding]:
    """Checks Java, the jar of the job server, and each address."""
    if beam.runner in ENGINES:
        yield _check_java()
        yield _check_jar(beam)
    pool = beam.environment_config if beam.environment_type == "EXTERNAL" else None
    todo = "on each of the engine's machines: python -m tfx_estimator.pipeline.worker_pool --service_port=PORT"
    cluster = f"start {beam.runner.capitalize()}, or correct beam.master: docs/{beam.runner}.md"
    for name, address, help_ in (
        ("cluster", beam.master, cluster),
        ("job server", beam.job_endpoint, "start it, or correct beam.job_endpoint: docs/beam.md"),
        ("worker pool", pool, todo),
    ):
        if address is not None:
            yield _check_address(name, address, help_)


def _check_java() -> Finding:
    todo = f"apt install openjdk-{_JAVA[-1]}-jre-headless"
    if shutil.which("java") is None:
        return Finding("Java", FAILED, "there is no program java, which runs Beam's job server", todo)
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', done.stderr)
    if found and int(found[1]) in _JAVA:
        return ok("Java", found[1])
    what = f"{found[1] if found else done.stderr.strip()}, expected {' or '.join(map(str, _JAVA))}"
    return Finding("Java", FAILED, what, todo)


def _check_jar(beam: BeamSection) -> Finding:
    # Beam's own code knows the name of the jar for its version.
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.portability import flink_runner, spark_runner
    from apache_beam.utils.subprocess_server import JavaJarServer

    server = {"flink": flink_runner.FlinkJarJobServer, "spark": spark_runner.SparkJarJobServer}[beam.runner]
    path = server(PipelineOptions(beam.pipeline_args())).path_to_jar()
    kept = os.path.join(JavaJarServer.JAR_CACHE, os.path.basename(path))
    todo = f"get the jar where there is a network, and name it: beam.job_server_jar; docs/{beam.runner}.md"
    for file in (path, kept):
        if os.path.isfile(file):
            return ok("job server", file)
    try:
        with urllib.request.urlopen(urllib.request.Request(path, method="HEAD"), timeout=_SECONDS):
            return ok("job server", f"{path} can be downloaded")
    except OSError as error:
        return Finding("job server", FAILED, f"{path}: {error}", todo)


def _check_address(name: str, address: str, todo: str) -> Finding:
    host, _, port = re.sub(r"^\w+://", "", address).rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _SECONDS):
            return ok(name, address)
    except (OSError, ValueError) as error:
        return Finding(name, FAILED, f"{address}: {error}", todo)
