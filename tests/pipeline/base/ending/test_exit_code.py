"""What a process of the project's ends with, whatever started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.root import ROOT
from tfx_estimator.pipeline.base.ending import exit_code, signals
from tfx_estimator.pipeline.base.errors import RETRYABLE, StoppedError, TaskFailedError, UserCodeError

pytestmark = pytest.mark.unit


def raising(error: BaseException):
    def work() -> None:
        raise error

    return work


def lost() -> TaskFailedError:
    error = TaskFailedError("a worker has gone")
    error.retryable = True
    return error


@pytest.mark.parametrize(
    ("error", "code", "again"),
    [
        (UserCodeError("no such layer"), 4, 4),
        (StoppedError("at a checkpoint", exit_code=130), 130, 130),
        (lost(), 5, 99),
        (signals.SignalledError(signal.SIGTERM), 143, 143),
    ],
)
def test_an_error_is_said_and_becomes_a_code(monkeypatch, capsys, error, code, again):
    assert exit_code.of(raising(error)) == code
    assert capsys.readouterr().err == f"{error}\n"
    monkeypatch.setenv(RETRYABLE, "99")
    assert exit_code.of(raising(error)) == again


def test_work_that_is_done_has_its_own_code():
    assert exit_code.of(lambda: None) == 0
    assert exit_code.of(lambda: 7) == 7


def test_a_mistake_is_none_of_them():
    with pytest.raises(KeyError):
        exit_code.of(raising(KeyError("state")))


# As __main__ does, with a training that ends by a signal.
_REPLICA = """
import os, runpy, signal, sys
from tfx_estimator.components.trainer import executor
executor.Executor.Do = lambda *told: os.kill(os.getpid(), signal.SIGTERM)
from tfx_estimator.pipeline.platforms.vertex import call
call.read_call = lambda folder: ({}, {}, {})
sys.argv[1:] = ["--call", sys.argv[1], "--roles", "chief"]
runpy.run_module("tfx_estimator.pipeline.platforms.vertex.replica", run_name="__main__")
"""


def test_a_replica_of_a_custom_job_says_what_signal_has_ended_it(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    words = [sys.executable, "-c", _REPLICA, str(tmp_path)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "ended by SIGTERM" in done.stderr) == (143, True), done.stderr
