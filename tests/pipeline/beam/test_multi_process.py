"""Beam's work in processes of this machine: which do it, who hears them, and how each way to fail ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.root import ROOT
from tests.waiting import wait_until
from tfx_estimator.pipeline.config.beam import BeamSection
from tfx_estimator.pipeline.errors import DamagedDataError
from tfx_estimator.pipeline.run.explain import explain

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

# As a user has it, in a file that is on no worker's own path.
STEPS = """
import os
import time

import psutil


def look(number):
    # Long enough for the other worker to have its part.
    time.sleep(0.2)
    me = psutil.Process()
    seen = [c.laddr.ip for c in me.parent().net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    return number, os.getpid(), seen


def divide(number):
    return number / 0


def refuse(number):
    from tfx_estimator.pipeline.errors import DamagedDataError

    raise DamagedDataError("a file is cut short", expected="a whole one", todo="fetch it again")


def leave(number):
    raise SystemExit(3)


def die(number):
    os._exit(7)


def wait(number):
    with open(os.environ["READY"], "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600)
"""


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The user's module."""
    (tmp_path / "its_steps.py").write_text(STEPS)
    monkeypatch.syspath_prepend(str(tmp_path))
    import its_steps

    yield its_steps
    del sys.modules["its_steps"]


def run(function: Callable[[int], Any], runner: str = "multi_process", workers: int | None = 1) -> None:
    """Applies a function to four numbers."""
    import apache_beam as beam

    section = BeamSection(runner=runner, workers=workers)
    with beam.Pipeline(argv=section.pipeline_args()) as pipeline:
        _ = pipeline | beam.Create(range(4)) | beam.Reshuffle() | beam.Map(function)


def said(function: Callable[[int], Any], runner: str, workers: int | None) -> str:
    """What a run says of an error."""
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        run(function, runner, workers)
    return str(explain(caught.value, "Transform", "the.log"))


def test_every_worker_works_and_only_this_machine_reaches_it(steps, tmp_path):
    import apache_beam as beam

    section = BeamSection(runner="multi_process", workers=2)
    with beam.Pipeline(argv=section.pipeline_args()) as pipeline:
        found = pipeline | beam.Create(range(8)) | beam.Reshuffle() | beam.Map(steps.look) | beam.Map(json.dumps)
        _ = found | beam.io.WriteToText(str(tmp_path / "seen"))
    lines = [line for file in tmp_path.glob("seen*") for line in file.read_text().splitlines()]
    seen = [json.loads(line) for line in lines]
    assert sorted(number for number, _, _ in seen) == list(range(8))
    assert len({process for _, process, _ in seen} - {os.getpid()}) == 2
    addresses = {address.removeprefix("::ffff:") for _, _, each in seen for address in each}
    assert addresses == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("divide", "ZeroDivisionError: division by zero", marks=pytest.mark.long),
        pytest.param("refuse", "a file is cut short", marks=pytest.mark.long),
        pytest.param("leave", "it ended the process: SystemExit(3)", marks=pytest.mark.long),
    ],
)
def test_an_error_in_a_worker_is_told_as_without_workers(steps, name, text):
    function = getattr(steps, name)
    there = said(function, "multi_process", 1)
    assert text in there
    assert there == said(function, "direct", None)


@pytest.mark.long
def test_a_worker_that_dies_is_an_error(steps):
    with pytest.raises(RuntimeError, match="a worker process of Beam ended, with exit code 7"):
        run(steps.die)


def test_errors_of_the_project_come_as_they_are(steps, tmp_path, monkeypatch):
    from tfx_estimator.pipeline.beam import worker_errors

    monkeypatch.setenv(worker_errors.VARIABLE, str(tmp_path / "errors"))
    (tmp_path / "errors").mkdir()
    assert worker_errors.read(str(tmp_path / "errors")) is None
    for raise_it in (steps.refuse, steps.divide):  # the first one counts
        with pytest.raises(Exception) as caught:  # noqa: PT011
            raise_it(0)
        worker_errors.write(caught.value)
    there = worker_errors.read(str(tmp_path / "errors"))
    assert isinstance(there, DamagedDataError)
    assert (there.what, there.todo) == ("a file is cut short", "fetch it again")


# Of a run, what has to do with its end.
RUN = """
import sys
sys.path.insert(0, sys.argv[1])
import apache_beam as beam
import its_steps
from tfx_estimator.pipeline.config.beam import BeamSection
from tfx_estimator.pipeline.ending import signals
try:
    with signals.handled():
        with beam.Pipeline(argv=BeamSection(runner="multi_process", workers=1).pipeline_args()) as pipeline:
            _ = pipeline | beam.Create(range(4)) | beam.Map(its_steps.wait)
except signals.SignalledError as end:
    sys.exit(end.exit_code)
"""


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_its_run(tmp_path, number):
    (tmp_path / "its_steps.py").write_text(STEPS)
    ready = tmp_path / "ready"
    environment = {**os.environ, "READY": str(ready), "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen([sys.executable, "-c", RUN, str(tmp_path)], env=environment) as process:
        try:

            def find_worker() -> str:
                assert process.poll() is None, "the run has ended"
                return ready.read_text() if ready.exists() else ""

            worker = psutil.Process(int(wait_until(find_worker, "a worker at its step", 100, every=0.05)))
            process.send_signal(number)
            code = process.wait(timeout=30)
        finally:
            process.kill()
    assert code == (128 + number if number == signal.SIGTERM else -number)
    gone, _ = psutil.wait_procs([worker], timeout=10)
    assert gone == [worker]
