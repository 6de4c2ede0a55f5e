"""A whole run with its work folder in S3: as on this machine; killed and resumed; in an outage; two at once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.runners.deployed import COMMON, OF_TARGET
from tests.root import ROOT
from tests.store.s3 import ADDRESS, S3, serving
from tests.waiting import wait_until
from tfx_estimator.pipeline.platforms.registry import KUBEFLOW

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]
STEPS, EVERY = 1500, 100


@pytest.fixture
def server() -> Iterator[S3]:
    with serving() as server:
        yield server


def command(workdir: object, *more: str) -> list[str]:
    options = (f"trainer.train_steps={STEPS}", f"trainer.save_checkpoints_steps={EVERY}")
    words = ["run", "digits", "--no-dry-run", "--no-report", "--workdir", str(workdir), *more]
    return [sys.executable, "-m", "tfx_estimator", *words, *(word for each in options for word in ("--set", each))]


def start(place: Path, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/src", "XDG_STATE_HOME": str(place)}
    place.mkdir(parents=True, exist_ok=True)
    with (place / "run.log").open("w") as log:
        return subprocess.Popen(words, env=environment, stdout=log, stderr=log, text=True, start_new_session=True)


def ended(place: Path, process: subprocess.Popen[str], code: int = 0) -> str:
    process.wait(600)
    text = (place / "run.log").read_text()
    assert process.returncode == code, text[-4000:]
    assert "Traceback" not in text
    return text


def summary(place: Path) -> dict[str, Any]:
    return json.loads(max(place.rglob("summary.json")).read_text())


def steps(place: Path) -> list[int]:
    return [int(step) for step in re.findall(r"step (\d+)/", (place / "run.log").read_text())]


def checkpoints(server: S3) -> list[int]:
    found = (re.search(r"/training/.*model\.ckpt-(\d+)\.index$", name) for name in server.names("runs/"))
    return sorted(int(each[1]) for each in found if each)


def pushed(server: S3) -> list[str]:
    return [name for name in server.names("runs/digits/serving/") if name.endswith("/saved_model.pb")]


def test_a_run_in_s3_is_as_one_on_this_machine(server, tmp_path):
    ended(tmp_path / "s3", start(tmp_path / "s3", *command(f"{ADDRESS}/runs")))
    ended(tmp_path / "here", start(tmp_path / "here", *command(tmp_path / "runs")))
    there, here = summary(tmp_path / "s3"), json.loads(max((tmp_path / "runs").rglob("summary.json")).read_text())
    assert there["accuracy"] == here["accuracy"] >= 0.97
    assert there["blessed"]
    assert len(pushed(server)) == 1
    ended(tmp_path / "again", start(tmp_path / "again", *command(f"{ADDRESS}/runs")))
    assert {each["state"] for each in summary(tmp_path / "again")["components"]} - {"resolved"} == {"cached"}


def test_a_killed_training_goes_on_at_its_checkpoint_and_one_run_at_a_time(server, tmp_path):
    first = start(tmp_path / "first", *command(f"{ADDRESS}/runs"))
    wait_until(lambda: len(checkpoints(server)) > 1, "two checkpoints", 300)
    other = start(tmp_path / "other", *command(f"{ADDRESS}/runs"))
    assert f"another machine is using {ADDRESS}/runs/digits" in ended(tmp_path / "other", other, code=6)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    last = checkpoints(server)[-1]
    ended(tmp_path / "second", start(tmp_path / "second", *command(f"{ADDRESS}/runs")))
    assert min(steps(tmp_path / "second")) >= last >= EVERY
    assert summary(tmp_path / "second")["blessed"]
    assert len(pushed(server)) == 1


def test_an_outage_of_a_minute_in_training_and_one_at_a_push_are_waited_for(server, tmp_path):
    process = start(tmp_path / "run", *command(f"{ADDRESS}/runs"))
    wait_until(lambda: len(checkpoints(server)) > 1, "two checkpoints", 300)
    with server.away():
        time.sleep(60)
        assert process.poll() is None
    pushes = threading.Event()
    server.before = lambda method, path: pushes.set() if method == "PUT" and "/serving/" in path else None
    assert pushes.wait(300)
    with server.away():
        time.sleep(10)
    ended(tmp_path / "run", process)
    assert steps(tmp_path / "run") == sorted(steps(tmp_path / "run"))
    assert len(pushed(server)) == 1


def test_a_file_of_kubeflow_executes_with_its_root_in_a_bucket(server, tmp_path):
    root = "deploy.pipeline_root=s3://some-bucket/pipelines"
    options = [word for each in (*COMMON, *OF_TARGET[KUBEFLOW], root) for word in ("--set", each)]
    compiled = str(tmp_path / "digits.yaml")
    program = (sys.executable, "-m", "tfx_estimator")
    words = (*program, "compile", "digits", "--target", KUBEFLOW, "--output", compiled, *options)
    ended(tmp_path / "compile", start(tmp_path / "compile", *words))
    words = (*program, "execute", compiled, "--root", f"{ADDRESS}/runs", "--require-blessing")
    output = ended(tmp_path / "execute", start(tmp_path / "execute", *words))
    assert re.search(r"accuracy +0\.98", output)
    assert [name for name in server.names("runs/") if re.search(r"serving/\d+/saved_model.pb$", name)]
