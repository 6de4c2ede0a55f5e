"""The pages of Flink and Spark, command by command, on real clusters: the results equal the direct runner's.

FLINK_HOME and SPARK_HOME are folders of releases; FLINK_JOB_SERVER_JAR and SPARK_JOB_SERVER_JAR are Beam's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, Page
from tests.e2e.conftest import Workdir
from tests.e2e.test_beam_engines import compare
from tests.root import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(3600)]

STOP = {
    "flink": ("bin/taskmanager.sh stop-all", "bin/jobmanager.sh stop-all"),
    "spark": ("sbin/stop-worker.sh", "sbin/stop-master.sh"),
}
PORTS = {"flink": 8081, "spark": 7077}
POOL = 50000


def page_of(engine: str) -> Page:
    (page,) = [page for page in PAGES if page.name == f"docs/{engine}.md"]
    return page


def wait_for(port: int, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection(("localhost", port), 5).close()
        except OSError:
            assert time.monotonic() < until, f"nothing listens on {port}"
            time.sleep(1)


@contextlib.contextmanager
def cluster(engine: str, release: str, folder: Path) -> Iterator[None]:
    """Runs the page's commands with a copy of a release; ends what they started."""
    home, variable = folder / engine, f"{engine.upper()}_HOME"
    shutil.copytree(release, home, symlinks=True)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, variable: str(home), "PYTHONPATH": str(ROOT / "src")}
    (block,) = page_of(engine).of("text")
    with contextlib.ExitStack() as stack:
        for command in STOP[engine]:
            stack.callback(subprocess.run, f"{home}/{command}", shell=True, check=False, env=environment)
        for line in block.text.splitlines():
            if line.endswith("&"):
                pool = subprocess.Popen(["bash", "-c", f"exec {line[:-1]}"], env=environment)
                stack.callback(pool.wait)
                stack.callback(pool.send_signal, signal.SIGTERM)
            else:
                subprocess.run(["bash", "-c", line], check=True, env=environment)
        for port in (PORTS[engine], POOL):
            wait_for(port)
        yield


@pytest.fixture(params=list(STOP))
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """The page's declaration on a running cluster, and the jar of the job server."""
    name = request.param
    variables = [f"{name.upper()}_HOME", f"{name.upper()}_JOB_SERVER_JAR"]
    if missing := [each for each in variables if not os.environ.get(each)]:
        pytest.skip(f"no {name} here: {' and '.join(missing)} not set")
    if shutil.which("java") is None:
        pytest.skip("there is no Java here")
    (block,) = [block for block in page_of(name).of("yaml") if block.file]
    (tmp_path / block.file).write_text(block.text)
    with cluster(name, os.environ[variables[0]], tmp_path):
        yield tmp_path / block.file, os.environ[variables[1]]


def test_an_engine_has_the_results_of_the_direct_runner(engine, tmp_path):
    declared, jar = engine
    remote, direct = (Workdir(tmp_path / name) for name in ("remote", "direct"))
    direct.run(str(declared), "--set", "beam={}")
    remote.run(str(declared), "--set", f"beam.job_server_jar={jar}", seconds=3000)
    compare(remote, direct, declared.stem)
